// SPDX-License-Identifier: Apache-2.0
//
// Gradients whose squares overflow a float, on each device, with Adagrad, Adam, Adamax, LAMB and RMSProp, with clipping and
// without.
#include "../test.hpp"

#include <cupola/optim/adagrad.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/adam_w.hpp>
#include <cupola/optim/adamax.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/lamb.hpp>
#include <cupola/optim/rms_prop.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

using namespace cupola;
using reference::Floats;

namespace {

constexpr float largest = std::numeric_limits<float>::max();

/// One that is a whole number of vectors and one that is not, the second with a regulariser.
constexpr std::array<Segment, 2> segments{{{.offset = 4, .size = 16, .rank = 4}, {25, 37, 0.01, 1}}};

/// Two tensors with padding around them, and an optimiser that updates them on `D`.
template <class D, class Optimizer>
class Training {
public:
    explicit Training(const Optimizer& optimizer)
        : optimizer_(optimizer),
          context_(0, device_options<D>(1)),
          w_(context_, reference::Random(1).normal(elements)),
          state_(context_, start_of(optimizer)) {}

    void step(std::int64_t step, const Floats& gradient) {
        [[maybe_unused]] const auto team = context_.team();
        operation_run::Guarded<D> on_device(context_, gradient);
        update_parameters(optimizer_, Update<D>{.context = context_,
                                                .parameters = w_.data(),
                                                .gradient = on_device.data(),
                                                .state = state_.data(),
                                                .elements = elements,
                                                .segments = segments,
                                                .step = step});
        w = w_.read();
        state = state_.read();
    }

    static constexpr std::int64_t elements = 64;
    Floats w, state;

private:
    static Floats start_of(const Optimizer& optimizer) {
        Floats result;
        for (int arena = 0; arena < optimizer.state_arenas(); ++arena)
            result.resize(result.size() + elements, state_start_of(optimizer, arena));
        return result;
    }

    Optimizer optimizer_;
    typename D::Context context_;
    operation_run::Guarded<D> w_, state_;
};

/// The gradient of a step: large ones of both signs among usual ones, and in each third step none.
Floats gradient_of(std::int64_t step) {
    static constexpr float large[] = {1.9e19F, 1e20F, 1e30F, largest};
    Floats result = reference::Random(static_cast<std::uint64_t>(10 + step)).normal(64);
    for (std::size_t i = 0; i < result.size() && step % 3 != 2; i += 2) {
        const bool negative = (i / 2 + static_cast<std::size_t>(step)) % 2 != 0;
        result[i] = negative ? -large[i / 2 % 4] : large[i / 2 % 4];
    }
    return result;
}

bool all_finite(const Floats& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a finite gradient of any size leaves parameters and state finite, in its step and after it",
                          D, large_gradients_finite) {
    const auto check = [](const auto& optimizer) {
        CAPTURE(optimizer.description());
        Training<D, std::remove_cvref_t<decltype(optimizer)>> training(optimizer);
        for (std::int64_t step = 0; step < 6; ++step) {
            CAPTURE(step);
            const Floats before = training.w;
            training.step(step, gradient_of(step));
            CHECK(all_finite(training.w));
            CHECK(all_finite(training.state));
            CHECK(training.w != before);
        }
    };
    check(Adagrad{.learning_rate = 0.01, .weight_decay = 0.01});
    check(Adam{.learning_rate = 0.01, .weight_decay = 0.01});
    check(AdamW{.learning_rate = 0.01});
    check(Adamax{.learning_rate = 0.01, .weight_decay = 0.01});
    check(RmsProp{.learning_rate = 0.01, .weight_decay = 0.01});
    check(RmsProp{.learning_rate = 0.01, .momentum = 0.9});
    check(Lamb{.learning_rate = 0.01, .weight_decay = 0.01});
    check(Clipped<AdamW>{.optimizer = {.learning_rate = 0.01}, .max_norm = 0.5, .max_value = 0.01});
    check(Clipped<Lamb>{.optimizer = {.learning_rate = 0.01}, .max_norm = 0.5});
    check(Clipped<RmsProp>{.optimizer = {.learning_rate = 0.01}, .max_value = 1e30});
}
TEST_CASE_TEMPLATE_APPLY(large_gradients_finite, Devices);

TEST_CASE_TEMPLATE_DEFINE("a gradient above 1e19 counts as 1e19, to the bit", D, large_gradients_limited) {
    const auto check = [](const auto& optimizer) {
        CAPTURE(optimizer.description());
        Training<D, std::remove_cvref_t<decltype(optimizer)>> training(optimizer), limited(optimizer);
        for (std::int64_t step = 0; step < 6; ++step) {
            CAPTURE(step);
            Floats gradient = gradient_of(step);
            training.step(step, gradient);
            for (float& value : gradient) value = std::clamp(value, -1e19F, 1e19F);
            limited.step(step, gradient);
            CHECK(reference::same_bits(training.w, limited.w));
            CHECK(reference::same_bits(training.state, limited.state));
        }
    };
    check(Adagrad{.learning_rate = 0.01, .weight_decay = 0.01});
    check(Adam{.learning_rate = 0.01, .weight_decay = 0.01});
    check(AdamW{.learning_rate = 0.01});
    check(RmsProp{.learning_rate = 0.01, .weight_decay = 0.01});
    check(RmsProp{.learning_rate = 0.01, .momentum = 0.9});
    check(Lamb{.learning_rate = 0.01, .weight_decay = 0.01});
}
TEST_CASE_TEMPLATE_APPLY(large_gradients_limited, Devices);
