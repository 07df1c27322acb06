// SPDX-License-Identifier: Apache-2.0
//
// DropPath<rate>: stochastic depth. In training, each sample is set to zero with probability `rate` and otherwise
// divided by 1 - rate; in evaluation, the identity. It is the last layer of a residual block's branch: a sample that is
// dropped there has the shortcut alone. ops/shared_dropout.hpp defines the random numbers.
//
//   input    any extents
//   output   the same
#pragma once

#include <cupola/layers/dropout.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/shared_dropout.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number rate>
struct DropPath {
    static constexpr LayerTraits traits = Dropout<rate>::traits;
    static constexpr LayerDescription description{"DropPath ", static_cast<double>(rate)};

    static constexpr ShapeResult output(const Shape& input) { return Dropout<rate>::output(input); }

    template <class BuildContext>
    static FactoryOf<ops::SharedDropout, BuildContext, SharedDropoutShape> operation(const BuildContext&) {
        return {SharedDropoutShape{.rate = rate}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
