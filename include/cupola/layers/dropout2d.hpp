// SPDX-License-Identifier: Apache-2.0
//
// Dropout2d<rate>: in training, each channel of a sample is set to zero with probability `rate` and otherwise divided
// by 1 - rate; in evaluation, the identity. ops/shared_dropout.hpp defines the random numbers.
//
//   input    height x width x channels
//   output   the same
#pragma once

#include <cupola/layers/dropout.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/shared_dropout.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number rate>
struct Dropout2d {
    static constexpr LayerTraits traits = Dropout<rate>::traits;
    static constexpr LayerDescription description{"Dropout2d ", static_cast<double>(rate)};

    static constexpr ShapeResult output(const Shape& input) {
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        return Dropout<rate>::output(input);
    }

    template <class BuildContext>
    static FactoryOf<ops::SharedDropout, BuildContext, SharedDropoutShape> operation(const BuildContext&) {
        return {SharedDropoutShape{.rate = rate, .per_channel = true}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
