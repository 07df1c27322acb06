// SPDX-License-Identifier: Apache-2.0
//
// Pointwise<Formula, constants...>: an activation defined by a formula per element, on every device. It takes any
// extents and has no parameters. A user's own activation is a formula and a name:
//
//   struct SoftsignFormula {
//       CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::abs(x)); }
//       CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
//           return dy * (1.0F - math::abs(y)) * (1.0F - math::abs(y));
//       }
//   };
//   struct Softsign : Pointwise<SoftsignFormula> {};
//
// ops/pointwise.hpp defines what a formula is, and ops/math.hpp has functions for it. The constants, if any, are the
// formula's members, as floats: all layers with one formula share their kernels.
#pragma once

#include <cupola/core/fixed_string.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <PointwiseFormula Formula, Number... constants>
struct Pointwise {
    static constexpr LayerKind kind = LayerKind::activation;
    static constexpr LayerTraits traits{.backward_reads_input = !HasGradientFromOutput<Formula>,
                                        .backward_reads_output = HasGradientFromOutput<Formula>};

    static constexpr ShapeResult output(const Shape& input) {
        if (!(constants.is_finite_float() && ...)) return ShapeError{"has a constant that is not a finite float"};
        return input;
    }

    template <class BuildContext>
        requires ComputesElements<typename BuildContext::DeviceType, typename BuildContext::Element>
    static OperationFactory<ops::Pointwise<typename BuildContext::DeviceType, typename BuildContext::Element, Formula>,
                            Formula>
    operation(const BuildContext&) {
        return {Formula{static_cast<float>(constants)...}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
