// SPDX-License-Identifier: Apache-2.0
//
// Operations against PyTorch's results (tests/golden): a second oracle, by other people.
#include "../test.hpp"

#include "../devices.hpp"
#include "../golden/golden.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance;

namespace {

Floats list(std::span<const float> values) { return {values.begin(), values.end()}; }

/// The extents of a tensor but the first, the batch's.
Shape sample(const golden::Case& c, std::string_view tensor) {
    const std::vector<std::int64_t> extents = c.extents(tensor);
    Shape shape;
    shape.rank = extents.size() - 1;
    std::copy(extents.begin() + 1, extents.end(), shape.extents.begin());
    return shape;
}

/// Cupola's window along the rows or the columns, and a check that its padding is the one that PyTorch was given.
WindowAxis axis(const golden::Case& c, std::size_t extent) {
    const WindowAxis result =
        window_axis(sample(c, "input")[extent], c.number<std::int64_t>("kernel"), c.number<std::int64_t>("stride"),
                    c.number<std::int64_t>("same") != 0 ? Padding::same : Padding::valid);
    const auto padding = c.list<std::int64_t>("padding").subspan(2 * extent);
    CHECK(result.output == sample(c, "output")[extent]);
    CHECK(result.pad_begin == padding[0]);
    CHECK(result.pad_end == padding[1]);
    return result;
}
WindowAxis rows(const golden::Case& c) { return axis(c, 0); }
WindowAxis columns(const golden::Case& c) { return axis(c, 1); }

Problem problem_of(const golden::Case& c, int threads) {
    Problem problem;
    problem.input = sample(c, "input");
    problem.output = sample(c, "output");
    problem.batch = c.extents("input")[0];
    problem.threads = threads;
    problem.x = list(c.list("input"));
    problem.dy = list(c.list("output_gradient"));
    if (c.has("weights")) problem.parameters = {list(c.list("weights")), list(c.list("biases"))};
    return problem;
}

void check(const golden::Case& c, const Outcome& outcome) {
    CHECK(distance(outcome.output, c.list("output")) < reference::tolerance);
    CHECK(distance(outcome.input_gradient, c.list("input_gradient")) < reference::tolerance);
    if (c.has("weights")) {
        CHECK(distance(outcome.parameter_gradients[0], c.list("weight_gradient")) < reference::tolerance);
        CHECK(distance(outcome.parameter_gradients[1], c.list("bias_gradient")) < reference::tolerance);
    }
}

}  // namespace

TYPED_TEST_CASE("convolution gives PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("conv2d")) {
        for (const int threads : thread_counts<D>()) {
            INFO(c.name());
            const Problem problem = problem_of(c, threads);
            const ConvolutionShape shape{rows(c), columns(c), problem.input.channels(), problem.output.channels(),
                                         true};
            check(c, operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                      return ops::Convolution<D, float>(build, shape);
                  }));
        }
    }
}

TYPED_TEST_CASE("linear layers give PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("linear")) {
        for (const int threads : thread_counts<D>()) {
            INFO(c.name());
            const Problem problem = problem_of(c, threads);
            const LinearShape shape{problem.input.size(), problem.output.size(), true};
            check(c, operation_run::run<D>(
                         problem, [&](const BuildContext<D>& build) { return ops::Linear<D, float>(build, shape); }));
        }
    }
}

TYPED_TEST_CASE("embeddings give PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("embedding")) {
        for (const int threads : thread_counts<D>()) {
            INFO(c.name());
            Problem problem;
            problem.input = sample(c, "ids");
            problem.output = sample(c, "output");
            problem.batch = c.extents("ids")[0];
            problem.threads = threads;
            const auto ids = std::as_bytes(c.list<std::int32_t>("ids"));
            problem.column.assign(ids.begin(), ids.end());
            problem.dy = list(c.list("output_gradient"));
            problem.parameters.push_back(list(c.list("table")));
            const std::vector<std::int64_t> table = c.extents("table");
            const EmbeddingShape shape{table[0], table[1], c.number<std::int64_t>("padding")};
            const Outcome outcome = operation_run::run<D>(
                problem, [&](const BuildContext<D>& build) { return ops::Embedding<D, float>(build, shape); });
            CHECK(distance(outcome.output, c.list("output")) == 0);
            CHECK(distance(outcome.parameter_gradients[0], c.list("table_gradient")) < reference::tolerance);
        }
    }
}

TYPED_TEST_CASE("pooling gives PyTorch's values", D, Devices) {
    const auto check_all = [](std::string_view group, PoolingKind kind) {
        for (const golden::Case& c : golden::cases(group)) {
            for (const int threads : thread_counts<D>()) {
                INFO(c.name());
                const Problem problem = problem_of(c, threads);
                const PoolingShape shape{rows(c), columns(c), problem.input.channels(), kind};
                check(c, operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                          return ops::Pooling<D, float>(build, shape);
                      }));
            }
        }
    };
    check_all("max_pool2d", PoolingKind::max);
    check_all("average_pool2d", PoolingKind::average);
}

TYPED_TEST_CASE("local response normalisation gives PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("local_response_norm")) {
        INFO(c.name());
        const Problem problem = problem_of(c, 2);
        const LocalResponseNormShape shape{problem.input.channels(), c.number<std::int64_t>("depth_radius"),
                                           c.number("bias"), c.number("alpha"), c.number("beta")};
        check(c, operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                  return ops::LocalResponseNorm<D, float>(build, shape);
              }));
    }
}

TYPED_TEST_CASE("ReLU gives PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("relu")) {
        INFO(c.name());
        const Outcome outcome = operation_run::run<D>(
            problem_of(c, 2), [](const BuildContext<D>& build) { return ops::Relu<D, float>(build); });
        CHECK(distance(outcome.output, c.list("output")) == 0);
        CHECK(distance(outcome.input_gradient, c.list("input_gradient")) == 0);
    }
}

TYPED_TEST_CASE("softmax cross-entropy gives PyTorch's values", D, Devices) {
    for (const golden::Case& c : golden::cases("cross_entropy")) {
        INFO(c.name());
        const auto batch = static_cast<std::size_t>(c.extents("logits")[0]);
        const auto classes = static_cast<std::size_t>(c.extents("logits")[1]);
        typename D::Context context(0, device_options<D>(2));
        const auto forward = [&](std::span<const float> logits, std::span<const std::int32_t> labels, Floats& result) {
            operation_run::Guarded<D> z(context, list(logits)), gradient(context, logits.size_bytes());
            typename D::Arena label_memory(labels.size_bytes(), "a test");
            D::copy_from_host(context, label_memory.data(), reinterpret_cast<const std::byte*>(labels.data()),
                              labels.size_bytes());
            const ops::SoftmaxCrossEntropy<D, float> loss(c.extents("logits")[1], c.number("label_smoothing"));
            const double sum =
                loss.forward(context, z.data(), reinterpret_cast<const std::int32_t*>(label_memory.data()),
                             static_cast<std::int64_t>(labels.size()), gradient.data())
                    .sum;
            result = gradient.read();
            return sum;
        };
        Floats gradient;
        const auto logits = c.list("logits"), sample_losses = c.list("sample_losses");
        const auto labels = c.list<std::int32_t>("labels");
        const double sum = forward(logits, labels, gradient);
        CHECK(sum / static_cast<double>(batch) ==
              doctest::Approx(c.number<double>("loss")).epsilon(reference::tolerance));
        CHECK(distance(gradient, c.list("logits_gradient")) < reference::tolerance);
        for (std::size_t n = 0; n < batch; ++n) {
            const double one = forward(logits.subspan(n * classes, classes), labels.subspan(n, 1), gradient);
            const auto expected = static_cast<double>(sample_losses[n]);
            CHECK(std::abs(one - expected) <= reference::tolerance * std::abs(expected) + 1e-7);
        }
    }
}

TYPED_TEST_CASE("batch normalisation and its running update agree with PyTorch", D, Devices) {
    for (const golden::Case& c : golden::cases("batch_norm")) {
        for (const int threads : thread_counts<D>()) {
            INFO(c.name(), ", threads ", threads);
            Problem problem = problem_of(c, threads);
            problem.activation = c.number<std::int64_t>("relu") != 0 ? Activation::relu : Activation::none;
            problem.buffers = {list(c.list("mean_before")), list(c.list("variance_before"))};
            const BatchNormShape shape{problem.input.channels(), c.number<double>("epsilon")};
            const auto run = [&] {
                return operation_run::run<D>(
                    problem, [&](const BuildContext<D>& build) { return ops::BatchNorm<D, float>(build, shape); });
            };
            const Outcome outcome = run();
            check(c, outcome);
            const double momentum = c.number<double>("momentum");
            const auto elements = static_cast<double>(problem.batch * problem.input.size() / problem.input.channels());
            for (const bool variance : {false, true}) {
                const Floats& before = problem.buffers[variance ? 1 : 0];
                const auto after = c.list(variance ? "running_variance" : "running_mean");
                const Floats& batch = outcome.statistics[variance ? 1 : 0];
                Floats updated(before.size());
                for (std::size_t i = 0; i < updated.size(); ++i) {
                    const double unbiased =
                        static_cast<double>(batch[i]) * (variance ? elements / (elements - 1) : 1.0);
                    updated[i] =
                        static_cast<float>((1 - momentum) * static_cast<double>(before[i]) + momentum * unbiased);
                }
                CHECK(distance(updated, after) < reference::tolerance);
            }
            problem.training = problem.made_for_training = false;
            CHECK(distance(run().output, c.list("evaluated")) < reference::tolerance);
        }
    }
}
