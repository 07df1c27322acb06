// SPDX-License-Identifier: Apache-2.0
//
// Losses for small trainings on Host.
#pragma once

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

/// Half the squared difference from the first of the target's two values, times the second, the weight. Without `counts` the
/// mean is by samples; without `weighs` each weight is 1.
template <bool counts = true, bool weighs = true>
struct WeightedSquares {
    static constexpr std::string_view name = "weighted_squares";
    using Target = float;
    static constexpr bool weighted = counts;
    static constexpr cupola::Shape target(const cupola::Shape&) { return {2}; }
    static constexpr cupola::CompileTimeMessage diagnostic(const cupola::Shape&) { return {}; }

    struct Operation {
        cupola::LossResult forward(cupola::HostContext&, const float* outputs, const float* targets,
                                   std::int64_t samples, float* gradient) const {
            cupola::LossResult result;
            for (std::int64_t n = 0; n < samples; ++n) {
                const float difference = outputs[n] - targets[2 * n], weight = weighs ? targets[2 * n + 1] : 1.0F;
                result.sum += 0.5 * static_cast<double>(weight * difference * difference);
                result.weight += static_cast<double>(weight);
                if (gradient != nullptr) gradient[n] = weight * difference / static_cast<float>(samples);
            }
            return result;
        }
    };
    template <class Device>
    [[nodiscard]] Operation operation() const {
        return {};
    }
};

/// Half the squared distance, a sum over the elements. The gradient is `factor` times what it should be.
template <int factor = 1>
struct SumOfSquares {
    static constexpr std::string_view name = "squares";
    using Target = float;
    static constexpr cupola::Shape target(const cupola::Shape& output) { return output; }
    static constexpr cupola::CompileTimeMessage diagnostic(const cupola::Shape&) { return {}; }

    struct Operation {
        std::int64_t elements;
        cupola::LossResult forward(cupola::HostContext&, const float* outputs, const float* targets, std::int64_t batch,
                                   float* gradient) const {
            cupola::LossResult result{.sum = 0, .correct = 0, .weight = static_cast<double>(batch), .predictions = 0};
            for (std::int64_t i = 0; i < batch * elements; ++i) {
                const float difference = outputs[i] - targets[i];
                result.sum += 0.5 * static_cast<double>(difference * difference);
                if (gradient != nullptr) gradient[i] = factor * difference / static_cast<float>(batch);
            }
            return result;
        }
    };
    template <class Device>
    [[nodiscard]] Operation operation(const cupola::Shape& output = {2}) const {
        return {output.size()};
    }
};
