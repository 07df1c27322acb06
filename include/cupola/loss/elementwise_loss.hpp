// SPDX-License-Identifier: Apache-2.0
//
// ElementwiseLoss<Formula, constants...>: a loss that is the mean of a formula per element of the output and its
// target, on every device. The targets are floats of the output's extents. A user's own loss is a formula and a name:
//
//   struct LogCoshFormula {
//       CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
//           const float d = math::abs(x - t);
//           return d + math::log1p(math::exp(-2.0F * d)) - 0.69314718F;
//       }
//       CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::tanh(x - t); }
//   };
//   struct LogCosh : ElementwiseLoss<LogCoshFormula> {
//       static constexpr std::string_view name = "log_cosh";
//   };
//
// ops/elementwise_loss.hpp defines what a formula is, and ops/math.hpp has functions for it. The constants, if any, are
// the formula's members, as floats.
#pragma once

#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/ops/elementwise_loss.hpp>
#include <cupola/ops/math.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class Formula, Number... constants>
struct ElementwiseLoss {
    using Target = float;

    /// What `Formula` lacks, or nothing.
    static consteval CompileTimeMessage formula_diagnostic() {
        CompileTimeMessage message;
        if constexpr (!LossFormula<Formula>) {
            message << short_type_name<Formula>() << " is not the formula of a loss: it lacks "
                    << (impl::HasLossValue<Formula> ? "`float derivative(float output, float target) const`"
                                                    : "`float operator()(float output, float target) const`");
        }
        return message;
    }

    /// The extents of the target of one sample.
    static constexpr Shape target(const Shape& output) { return output; }
    /// Any output will do.
    static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }

    template <class Device>
        requires LossFormula<Formula>
    [[nodiscard]] ops::ElementwiseLoss<Device, Formula> operation(const Shape& output) const {
        return ops::ElementwiseLoss<Device, Formula>(output.size(), Formula{static_cast<float>(constants)...});
    }
};

}  // namespace cupola::inline CUPOLA_ABI
