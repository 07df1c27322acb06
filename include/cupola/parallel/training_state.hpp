// SPDX-License-Identifier: Apache-2.0
//
// What a training is made of between two steps: everything that the next step depends on beside the options and the
// data. `training.state()` copies it out, `training.restore(state)` puts it back, and io/checkpoint.hpp keeps it in a
// file.
#pragma once

#include <cstdint>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

struct TrainingState {
    /// The step that comes next.
    std::int64_t step = 0;
    /// In the layout of the network's parameter arena.
    std::vector<float> parameters{};
    /// The parameters' moving averages, in the same layout; empty where none are kept.
    std::vector<float> averages{};
    /// The optimiser's state arenas, each in the same layout.
    std::vector<std::vector<float>> optimizer{};
    /// Batch normalisation's running statistics, in the layout of the network's buffer arena.
    std::vector<float> buffers{};
};

}  // namespace cupola::inline CUPOLA_ABI
