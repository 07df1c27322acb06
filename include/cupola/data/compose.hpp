// SPDX-License-Identifier: Apache-2.0
//
// Transforms one after the other, as `Compose` of torchvision:
//
//   const Compose augmented{RandomResizedCrop{}, ColorJitter{.brightness = 0.4}, ResNet50<>::preprocessing};
//   Prefetch batches(TrainingBatches(photographs, augmented, {.batch_size = 32, .seed = 1}), {.workers = 2});
//
// Each takes what the one before it made: bytes stay bytes until a transform makes floats of them. All draw from the
// random numbers of the sample. Cupola's augmentations that can be composed draw from different words of them, so their
// numbers are independent, but a transform that occurs twice draws the same numbers twice.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/impl/scratch.hpp>
#include <cupola/data/transform_description.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// A transform that writes values of type `To` for a sample of values of type `From`.
template <class Step, class From, class To>
concept StepTo = requires(const Step& step, std::span<const From> sample, const Shape& shape,
                          const RandomStream& random, To* to) { step(sample, shape, random, to); };

/// The type of the values that the steps make of values of type `From`; void if a step does not take what it is given.
/// `fitting` is the number of steps before that one.
template <class From, class... Steps>
struct ComposedValue {
    using type = From;
    static constexpr std::size_t fitting = 0;
};
template <class From, class First, class... Rest>
struct ComposedValue<From, First, Rest...> {
    using type = void;
    static constexpr std::size_t fitting = 0;
};
template <class From, class First, class... Rest>
    requires StepTo<First, From, float>
struct ComposedValue<From, First, Rest...> : ComposedValue<float, Rest...> {
    static constexpr std::size_t fitting = 1 + ComposedValue<float, Rest...>::fitting;
};
template <class From, class First, class... Rest>
    requires(StepTo<First, From, From> && !StepTo<First, From, float>)
struct ComposedValue<From, First, Rest...> : ComposedValue<From, Rest...> {
    static constexpr std::size_t fitting = 1 + ComposedValue<From, Rest...>::fitting;
};

/// The error message for steps that do not fit for samples of any type; empty if they fit.
template <class... Steps>
[[nodiscard]] consteval CompileTimeMessage compose_diagnostic() {
    constexpr auto fitting =
        []<class... Values>(std::tuple<Values...>*) {
            return std::max({ComposedValue<Values, Steps...>::fitting...});
        }(static_cast<
            std::tuple<std::uint8_t, float, std::int32_t, std::int8_t, std::int16_t, std::uint16_t, std::uint32_t,
                       std::int64_t, std::uint64_t, double, bool, char, long long, unsigned long long, long double>*>(
            nullptr));
    CompileTimeMessage message;
    if constexpr (fitting < sizeof...(Steps)) {
        constexpr std::array names{short_type_name<Steps>()...};
        message << "transform " << std::int64_t{fitting + 1} << " of Compose, " << names[fitting] << ", ";
        if constexpr (fitting > 0) {
            message << "does not take the values that " << names[fitting - 1] << " makes";
        } else {
            message << "takes no samples";
        }
    }
    return message;
}

}  // namespace impl

template <class... Steps>
class Compose {
public:
    static_assert(sizeof...(Steps) >= 1, "Compose needs at least one transform");
    explicit Compose(Steps... steps) : steps_(std::move(steps)...) {
        static_assert(static_assert_message<impl::compose_diagnostic<Steps...>()>());
    }

    /// The text by which two runs are compared: those of the steps.
    [[nodiscard, gnu::cold]] std::string description() const {
        std::string result = "Compose";
        std::apply([&](const Steps&... step) { ((result += "; " + impl::description_of_transform(step)), ...); },
                   steps_);
        return result;
    }
    /// The extents of a sample. Throws what a step throws for extents that it does not take.
    [[nodiscard]] Shape output(const Shape& input) const {
        Shape shape = input;
        std::apply([&](const Steps&... step) { ((shape = step.output(shape)), ...); }, steps_);
        return shape;
    }
    /// Writes one sample.
    template <class Value>
        requires(!std::is_void_v<typename impl::ComposedValue<Value, Steps...>::type>)
    void operator()(std::span<const Value> sample, const Shape& shape, const RandomStream& random,
                    typename impl::ComposedValue<Value, Steps...>::type* to) const {
        run<0>(sample, shape, random, to);
    }

private:
    template <std::size_t k, class Value, class Result>
    void run(std::span<const Value> sample, const Shape& shape, const RandomStream& random, Result* to) const {
        const auto& step = std::get<k>(steps_);
        if constexpr (k + 1 == sizeof...(Steps)) {
            step(sample, shape, random, to);
        } else {
            using Next = typename impl::ComposedValue<Value, std::remove_cvref_t<decltype(step)>>::type;
            const Shape next = step.output(shape);
            impl::Scratch<Next> values(static_cast<std::size_t>(next.size()));
            step(sample, shape, random, values.data());
            run<k + 1>(std::span<const Next>(values.data(), values.size()), next, random, to);
        }
    }

    std::tuple<Steps...> steps_;
};

}}  // namespace cupola::CUPOLA_ABI
