// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/softmax.hpp
//
// Softmax and LogSoftmax of the channels, against plain loops in double and PyTorch's figures.
#include "../test.hpp"

#include <cupola/layers/softmax.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "torch_figures.hpp"

namespace {

static_assert(LayerOn<Softmax, AnyDevice> && LayerOn<LogSoftmax, AnyDevice>);
static_assert(Softmax::output(Shape{8, 5, 16}).shape == Shape{8, 5, 16});
static_assert(LogSoftmax::output(Shape{10}).shape == Shape{10});
static_assert(parameters_of<Softmax>(Shape{10}).count == 0);
static_assert(!traits_of<Softmax>().backward_reads_input && traits_of<LogSoftmax>().backward_reads_output);

template <bool logarithm, class D>
void agrees(const Shape& input, std::int64_t batch, double deviation = 2.0) {
    const std::uint64_t seed = reference::fresh_seed();
    operation_run::Outcome one;
    for (int threads = 1; threads <= (CaseContext<DeviceOf<D>>::is_shared ? 1 : 3); ++threads) {
        CAPTURES(seed, logarithm, threads, input.size(), batch);
        reference::Random random(seed);
        operation_run::Problem problem;
        problem.input = problem.output = input;
        problem.batch = batch;
        problem.threads = threads;
        problem.x = operation_run::rounded<D>(random.normal(batch * input.size(), deviation));
        problem.dy = operation_run::rounded<D>(random.normal(batch * input.size(), 1.0, 0.5));
        const operation_run::Outcome outcome = operation_run::run<D>(problem, [](const auto& build) {
            return operation_of<std::conditional_t<logarithm, LogSoftmax, Softmax>>(build);
        });
        reference::Doubles y, dx, terms;
        const auto width = static_cast<std::size_t>(input.channels());
        for (std::size_t first = 0; first < problem.x.size(); first += width) {
            double top = -std::numeric_limits<double>::infinity(), sum = 0;
            for (std::size_t i = first; i < first + width; ++i) top = std::max(top, static_cast<double>(problem.x[i]));
            for (std::size_t i = first; i < first + width; ++i)
                sum += std::exp(static_cast<double>(problem.x[i]) - top);
            double along = 0;  // backward reads the output, which may be rounded
            for (std::size_t i = first; i < first + width; ++i) {
                const double of_x = static_cast<double>(problem.x[i]) - top - std::log(sum);
                y.push_back(logarithm ? of_x : std::exp(of_x));
                const auto dy = static_cast<double>(problem.dy[i]), out = static_cast<double>(outcome.output[i]);
                along += logarithm ? dy : dy * out;
            }
            for (std::size_t i = first; i < first + width; ++i) {
                const auto dy = static_cast<double>(problem.dy[i]), out = static_cast<double>(outcome.output[i]);
                dx.push_back(logarithm ? dy - std::exp(out) * along : out * (dy - along));
                const double factor = logarithm ? std::exp(out) : out;
                terms.push_back((logarithm ? 1 : out) * std::abs(dy) + factor * std::abs(along));
            }
        }
        CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
        // Where an output is nearly 1, its gradient is the difference of two terms that are nearly equal.
        CHECK(reference::distance_at(deviation > 10 ? terms : dx, outcome.input_gradient, dx) <
              operation_run::tolerance<D>);
        if (threads == 1) one = outcome;
        CHECK(reference::same_bits(outcome.output, one.output));
        CHECK(reference::same_bits(outcome.input_gradient, one.input_gradient));
    }
}

}  // namespace

TYPED_TEST_CASE("Softmax and LogSoftmax agree with plain loops", D, DevicesAndElements) {
    for (const Shape& input :
         {Shape{10}, Shape{3}, Shape{4, 1, 8}, Shape{3, 5, 33}, Shape{7, 100}, Shape{1, 2, 1000}}) {
        agrees<false, D>(input, 3);
        agrees<true, D>(input, 1);
    }
    agrees<false, D>({17}, 2, 100.0);
    agrees<true, D>({17}, 2, 100.0);
}

TYPED_TEST_CASE("Softmax computes what PyTorch computes", D, DevicesAndElements) {
    torch_figures::check<Softmax, D>(
        {.output = {0.00652783783F, 0.216172308F, 0.0227843933F, 0.754515469F, 0.2014658F, 0.0212343391F, 0.703184724F,
                    0.0741151199F, 0.673678458F, 0.0710051879F, 0.00748389168F, 0.247832462F, 0.0263340324F,
                    0.872063398F, 0.0919148028F, 0.00968774874F},
         .input_gradient = {-0.00855487678F, -0.0130832233F, -0.0270114038F, 0.0486494973F, -0.0435869843F,
                            0.0219488889F, -0.0642354339F, 0.0858735293F, -0.28999272F, 0.0581914745F, -0.00228604162F,
                            0.234087273F, -0.0293595269F, 0.11782518F, -0.0909854695F, 0.0025198881F},
         .parameter_gradients = {}});
}

TYPED_TEST_CASE("LogSoftmax computes what PyTorch computes", D, Devices) {
    torch_figures::check<LogSoftmax, D>(
        {.output = {-5.03167963F, -1.53167951F, -3.78167939F, -0.281679481F, -1.60213566F, -3.85213566F, -0.352135628F,
                    -2.60213566F, -0.395002335F, -2.64500237F, -4.89500237F, -1.39500237F, -3.63689327F, -0.136893153F,
                    -2.38689327F, -4.63689327F},
         .input_gradient = {-1.11357629F, 0.503301561F, -0.960127294F, 1.57040203F, -0.723900676F, 0.390925765F,
                            -0.222611457F, 0.555586338F, -0.7934196F, 0.607248724F, -0.50187099F, 0.688041866F,
                            -0.407917529F, -0.215079248F, -0.364893496F, 0.987890303F},
         .parameter_gradients = {}});
}

TYPED_TEST_CASE("a value far below the largest has probability 0, -inf none, and a NaN stays in its row", D,
                DevicesAndElements) {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    operation_run::Problem problem;
    problem.input = problem.output = {3};
    problem.batch = 4;
    problem.x = {30000, -30000, 30000, -inf, 1, 1, 0, nan, 0, -30000, -30000, -30000};
    problem.dy = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    problem.x = operation_run::rounded<D>(problem.x);
    const auto outcome = operation_run::run<D>(problem, [](const auto& build) { return operation_of<Softmax>(build); });
    const auto& y = outcome.output;
    CHECK(y[0] == 0.5F);
    CHECK(y[1] == 0.0F);
    CHECK(y[2] == 0.5F);
    CHECK(y[3] == 0.0F);
    CHECK(y[4] == 0.5F);
    for (std::size_t i = 6; i < 9; ++i) {
        CHECK(std::isnan(y[i]));
        CHECK(std::isnan(outcome.input_gradient[i]));
    }
    CHECK(std::abs(y[9] - 1.0F / 3) < 1e-3F);
    const auto logarithm =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<LogSoftmax>(build); }).output;
    CHECK(std::abs(logarithm[0] + 0.6931F) < 2e-3F);
    CHECK(logarithm[1] < -59000.0F);
    CHECK(logarithm[3] == -inf);
    CHECK(std::isnan(logarithm[6]));
    CHECK(std::abs(logarithm[9] + 1.0986F) < 4e-3F);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of Softmax and LogSoftmax are their derivatives") {
    const GradientCheck of_softmax = check_gradients<Softmax, Host>({3, 2, 5});
    CHECK_MESSAGE(of_softmax, of_softmax.report());
    const GradientCheck of_logarithm = check_gradients<LogSoftmax, Host>({7});
    CHECK_MESSAGE(of_logarithm, of_logarithm.report());
}
#endif
