// SPDX-License-Identifier: Apache-2.0
//
// Random inputs and a label per sample, in memory that stays: what the batches of a training are views of.
#pragma once

#include <cupola/layers/initializer.hpp>
#include <cupola/tensor/batch.hpp>

#include "standard.hpp"

struct LabelledSamples {
    LabelledSamples(std::int64_t count, const cupola::Shape& of_sample, std::int32_t classes, std::uint64_t seed = 3)
        : shape(of_sample), inputs(static_cast<std::size_t>(count * shape.size())) {
        cupola::initialize(inputs, cupola::normal(1.0), 1, 1, seed, 0);
        for (std::int64_t n = 0; n < count; ++n) labels.push_back(static_cast<std::int32_t>(7 * n % classes));
    }
    [[nodiscard]] cupola::BatchView view(std::int64_t first, std::int64_t size) const {
        return {inputs.data() + first * shape.size(), labels.data() + first, size, shape};
    }

    cupola::Shape shape;
    std::vector<float> inputs;
    std::vector<std::int32_t> labels;
};
