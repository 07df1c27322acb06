// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/adamax.hpp>

#include "../test.hpp"

#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

using namespace cupola;
using reference::Floats;

namespace {

/// torch.optim.Adamax in double, as its documentation has it.
struct Reference {
    std::vector<double> w, m, u;
    Adamax adamax;

    void step(std::int64_t step, const Floats& gradient) {
        const double corrected =
            adamax.learning_rate_at(step) / (1 - std::pow(adamax.beta1, static_cast<double>(step + 1)));
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) + adamax.weight_decay * w[i];
            m[i] += (1 - adamax.beta1) * (g - m[i]);
            u[i] = std::max(adamax.beta2 * u[i], std::abs(g) + adamax.epsilon);
            w[i] -= corrected * m[i] / u[i];
        }
    }
};

/// An optimiser's update of one tensor on `D`, and what it holds afterwards.
template <class D>
class OneTensor {
public:
    OneTensor(const Adamax& adamax, const Floats& initial)
        : adamax_(adamax),
          size_(static_cast<std::int64_t>(initial.size())),
          context_(0, device_options<D>(1)),
          w_(context_, initial),
          state_(context_, Floats(2 * initial.size())) {}

    void step(std::int64_t step, const Floats& gradient) {
        [[maybe_unused]] const auto team = context_.team();
        operation_run::Guarded<D> on_device(context_, gradient);
        const Segment segment{0, size_};
        update_parameters(adamax_, Update<D>{.context = context_,
                                             .parameters = w_.data(),
                                             .gradient = on_device.data(),
                                             .state = state_.data(),
                                             .elements = size_,
                                             .segments = {&segment, 1},
                                             .step = step});
        w = w_.read();
        const Floats state = state_.read();
        m.assign(state.begin(), state.begin() + size_);
        u.assign(state.begin() + size_, state.end());
    }

    Floats w, m, u;

private:
    Adamax adamax_;
    std::int64_t size_;
    typename D::Context context_;
    operation_run::Guarded<D> w_, state_;
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("twenty steps of Adamax are PyTorch's, with a schedule, other betas and weight decay", D,
                          adamax_steps) {
    for (const std::int64_t size : {1, 4, 37, 5000}) {
        for (const double beta2 : {0.999, 0.5}) {
            for (const double weight_decay : {0.0, 0.05}) {
                CAPTURES(size, beta2, weight_decay);
                const Adamax adamax{.learning_rate = exponential_decay(0.05, 5, 0.5),
                                    .beta1 = 0.8,
                                    .beta2 = beta2,
                                    .epsilon = 1e-3,
                                    .weight_decay = weight_decay};
                const Floats initial = reference::Random(1).normal(size);
                OneTensor<D> tensor(adamax, initial);
                const std::vector<double> zeros(initial.size());
                Reference expected{{initial.begin(), initial.end()}, zeros, zeros, adamax};
                for (std::int64_t step = 0; step < 20; ++step) {
                    const Floats gradient = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(size);
                    tensor.step(step, gradient);
                    expected.step(step, gradient);
                    CHECK(reference::distance(tensor.w, expected.w) < 1e-5);
                }
                CHECK(reference::distance(tensor.m, expected.m) < 1e-5);
                CHECK(reference::distance(tensor.u, expected.u) < 1e-5);
            }
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(adamax_steps, Devices);

TEST_CASE("the first step of Adamax moves each parameter by the rate, and one without a gradient not at all") {
    OneTensor<AnyDevice> tensor({.learning_rate = 0.25, .epsilon = 1e-30}, {1, -2, 0, 3});
    tensor.step(0, {4, -1e-3F, 0, 1e30F});
    CHECK(reference::distance(tensor.w, std::vector<double>{0.75, -1.75, 0, 2.75}) < 1e-6);
    CHECK(tensor.w[2] == 0.0F);
}
