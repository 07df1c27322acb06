// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/adagrad.hpp>

#include "../test.hpp"

#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

using namespace cupola;
using reference::Floats;

namespace {

/// torch.optim.Adagrad in double, as its documentation has it.
struct Reference {
    std::vector<double> w, sum;
    double rate, lr_decay, weight_decay, epsilon;

    void step(std::int64_t step, const Floats& gradient) {
        const double decayed = rate / (1 + static_cast<double>(step) * lr_decay);
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + weight_decay * w[i];
            sum[i] += g * g;
            w[i] -= decayed * g / (std::sqrt(sum[i]) + epsilon);
        }
    }
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE(
    "twenty steps of Adagrad are PyTorch's, with a learning-rate decay, an initial accumulator value and weight decay",
    D, adagrad_steps) {
    for (const std::int64_t size : {1, 4, 37, 5000}) {
        for (const double start : {0.0, 0.1}) {
            for (const double weight_decay : {0.0, 0.05}) {
                CAPTURES(size, start, weight_decay);
                constexpr double lr_decay = 0.1;
                const Adagrad adagrad{.learning_rate = {[](std::int64_t step) {
                                                            return 0.2 / (1 + static_cast<double>(step) * lr_decay);
                                                        },
                                                        "0.2, decaying"},
                                      .initial_accumulator_value = start,
                                      .weight_decay = weight_decay};
                typename D::Context context(0, device_options<D>(1));
                [[maybe_unused]] const auto team = context.team();
                const Floats initial = reference::Random(1).normal(size);
                operation_run::Guarded<D> w(context, initial),
                    sum(context, Floats(initial.size(), state_start_of(adagrad, 0)));
                Reference expected{{initial.begin(), initial.end()},
                                   std::vector<double>(initial.size(), start),
                                   0.2,
                                   lr_decay,
                                   weight_decay,
                                   1e-10};
                const Segment segment{0, size};
                for (std::int64_t step = 0; step < 20; ++step) {
                    const Floats gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
                    operation_run::Guarded<D> on_device(context, gradient);
                    update_parameters(adagrad, Update<D>{.context = context,
                                                         .parameters = w.data(),
                                                         .gradient = on_device.data(),
                                                         .state = sum.data(),
                                                         .elements = size,
                                                         .segments = {&segment, 1},
                                                         .step = step});
                    expected.step(step, gradient);
                    CHECK(reference::distance(w.read(), expected.w) < 1e-5);
                }
                CHECK(reference::distance(sum.read(), expected.sum) < 1e-5);
            }
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(adagrad_steps, Devices);

TEST_CASE("an element without a gradient is unchanged, also with a sum of 0") {
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    [[maybe_unused]] const auto team = context.team();
    operation_run::Guarded<AnyDevice> w(context, Floats{1, -2, 0}), sum(context, Floats(3)),
        gradient(context, Floats(3));
    const Segment segment{0, 3};
    update_parameters(Adagrad{}, Update<AnyDevice>{.context = context,
                                                   .parameters = w.data(),
                                                   .gradient = gradient.data(),
                                                   .state = sum.data(),
                                                   .elements = 3,
                                                   .segments = {&segment, 1}});
    CHECK(w.read() == Floats{1, -2, 0});
    CHECK(sum.read() == Floats(3));
}
