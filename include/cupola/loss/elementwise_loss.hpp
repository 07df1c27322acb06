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
// the formula's members, as floats, in the order of their declaration:
//
//   struct QuantileFormula {
//       float q;
//       ...
//   };
//   struct Quantile : ElementwiseLoss<QuantileFormula, 0.9> { ... };
//
// A member without a constant and without an initialiser of its own (`float q = 0.5F;`) does not compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/ops/elementwise_loss.hpp>
#include <cupola/ops/math.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Whether every member has an initialiser of its own, or the formula a constructor.
#ifdef __CUDACC__
// nvcc rejects the expression below. This one overlooks a member without an initialiser if another member has one.
template <class Formula>
concept HasOwnValues = std::is_empty_v<Formula> || !std::is_trivially_default_constructible_v<Formula>;
#else
template <class Formula>
concept HasOwnValues = requires { new const Formula; };
#endif

/// Converts to the type of any member.
struct AnyValue {
    template <class T>
    operator T() const;  // NOLINT: never called
};

}  // namespace impl

template <class Formula, Number... constants>
struct ElementwiseLoss {
    using Target = float;

    static constexpr bool takes_constants = requires { Formula{static_cast<float>(constants)...}; };
    /// Whether a member has neither a constant nor an initialiser. Where there are constants and initialisers, the
    /// members without a constant are assumed to be those that are initialised.
    static constexpr bool leaves_a_member_out =
        sizeof...(constants) == 0
            ? !impl::HasOwnValues<Formula>
            : std::is_aggregate_v<Formula> && std::is_trivially_default_constructible_v<Formula> && requires {
                  Formula{static_cast<float>(constants)..., impl::AnyValue()};
              };

    /// The members that `Formula` lacks; empty if it is complete.
    static consteval CompileTimeMessage formula_diagnostic() {
        CompileTimeMessage message;
        if constexpr (!LossFormula<Formula>) {
            message << short_type_name<Formula>() << " is not the formula of a loss: it lacks "
                    << (impl::HasLossValue<Formula> ? "`float derivative(float output, float target) const`"
                                                    : "`float operator()(float output, float target) const`");
        } else if constexpr (!takes_constants) {
            message << short_type_name<Formula>() << " cannot be made of the "
                    << static_cast<std::int64_t>(sizeof...(constants))
                    << " constants of its ElementwiseLoss: they are its members, as floats, in their order";
        } else if constexpr (!(constants.is_finite_float() && ...)) {
            message << short_type_name<Formula>()
                    << " has a constant in its ElementwiseLoss that is not a finite float";
        } else if constexpr (leaves_a_member_out) {
            message << short_type_name<Formula>() << " has a member without a value: its ElementwiseLoss has "
                    << static_cast<std::int64_t>(sizeof...(constants))
                    << (sizeof...(constants) == 1 ? " constant" : " constants")
                    << ", and each member needs one or an initialiser, as in ElementwiseLoss<"
                    << short_type_name<Formula>() << ", 0.5>";
        }
        return message;
    }

    /// The extents of the target of one sample.
    static constexpr Shape target(const Shape& output) { return output; }
    /// Empty: every output is accepted.
    static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }

    /// The constants as a text, by which two trainings are compared.
    [[nodiscard, gnu::cold]] std::string description() const
        requires(sizeof...(constants) > 0)
    {
        std::string result = "constants";
        for (const double constant : {static_cast<double>(constants)...}) result += ' ' + exact_text(constant);
        return result;
    }

    template <class Device>
        requires(formula_diagnostic().empty())
    [[nodiscard]] ops::ElementwiseLoss<Device, Formula> operation(const Shape& output) const {
        return ops::ElementwiseLoss<Device, Formula>(output.size(), Formula{static_cast<float>(constants)...});
    }
};

}}  // namespace cupola::CUPOLA_ABI
