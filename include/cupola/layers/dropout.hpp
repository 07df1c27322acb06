// SPDX-License-Identifier: Apache-2.0
//
// Dropout<rate>: in training, each element is set to zero with probability `rate` and otherwise divided by 1 - rate; in
// evaluation, the identity. ops/dropout.hpp defines the random numbers.
#pragma once

#include <cupola/core/finite.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/dropout.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number rate>
struct Dropout {
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .only_in_training = true};
    static constexpr LayerDescription description{"Dropout ", static_cast<double>(rate)};

    static constexpr ShapeResult output(const Shape& input) {
        if (!impl::is_finite(rate) || rate < 0.0 || rate >= 1.0) return ShapeError{"has a rate outside [0, 1)"};
        return input;
    }

    template <class BuildContext>
    static FactoryOf<ops::Dropout, BuildContext, double> operation(const BuildContext&) {
        return {static_cast<double>(rate)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
