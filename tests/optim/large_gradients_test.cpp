// SPDX-License-Identifier: Apache-2.0
//
// Gradients whose squares overflow a float, on each device, with Adagrad, Adam, Adamax, LAMB and RMSProp, with clipping and
// without.
#include "../test.hpp"

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "each_optimizer.hpp"
#include "updated_tensors.hpp"

using reference::Floats;

namespace {

constexpr float largest = std::numeric_limits<float>::max();

/// Two tensors with padding around them: a whole number of vectors and one that is not, the second with a regulariser.
template <class D, class Optimizer>
struct Training : UpdatedTensors<D, Optimizer> {
    explicit Training(const Optimizer& optimizer)
        : UpdatedTensors<D, Optimizer>(optimizer, reference::Random(1).normal(64),
                                       {{.offset = 4, .size = 16, .rank = 4}, {25, 37, 0.01, 1}}) {}
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

/// Whether the optimiser adds the squares of gradients. The others' updates are as large as the gradient.
template <class O>
constexpr bool adds_squares = std::is_same_v<O, Adagrad> || std::is_same_v<O, Adam> || std::is_same_v<O, AdamW> ||
                              std::is_same_v<O, RmsProp> || std::is_same_v<O, Lamb>;

bool all_finite(const Floats& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

TYPED_TEST_CASE("a finite gradient of any size leaves parameters and state finite, in its step and after it", D,
                Devices) {
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
    with_each_optimizer([&]<class O>(const O& optimizer) {
        if constexpr (adds_squares<O> || std::is_same_v<O, Adamax> || std::is_same_v<O, Clipped<AdamW>>)
            check(optimizer);
    });
    check(Clipped<Lamb>{.optimizer = {.learning_rate = 0.01}, .max_norm = 0.5});
    check(Clipped<RmsProp>{.optimizer = {.learning_rate = 0.01}, .max_value = 1e30});
}

TYPED_TEST_CASE("a gradient above 1e19 counts as 1e19, to the bit", D, Devices) {
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
    with_each_optimizer([&]<class O>(const O& optimizer) {
        if constexpr (adds_squares<O>) check(optimizer);
    });
}
