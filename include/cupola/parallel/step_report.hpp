// SPDX-License-Identifier: Apache-2.0
//
// What a step says of itself: every part of the loss by name, for each replica.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// One part of a replica's loss.
struct LossPart {
    std::string name;
    double value = 0;
};

/// One replica's step.
struct ReplicaReport {
    std::int64_t samples = 0;
    /// The loss of the data, the mean over the replica's samples, then what regularises; `total` is their sum.
    std::vector<LossPart> parts;
    double total = 0;
    /// Samples whose label's class had the largest logit.
    std::int64_t correct = 0;
};

struct StepReport {
    /// The step that was made, from 0.
    std::int64_t step = 0;
    std::int64_t samples = 0;
    double learning_rate = 0;
    /// The mean of the replicas' totals, weighted by samples: what the averaged gradient is the gradient of.
    double loss = 0;
    std::vector<ReplicaReport> replicas;
};

/// Which parameters a network is run with: those that are trained, or their moving averages.
enum class Weights : std::uint8_t { trained, averages };

[[nodiscard]] constexpr const char* to_string(Weights weights) {
    return weights == Weights::averages ? "moving averages" : "trained parameters";
}

/// What evaluation says: means over the samples.
struct Evaluation {
    std::int64_t samples = 0, correct = 0;
    double loss = 0;
    [[nodiscard]] double accuracy() const {
        return samples == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(samples);
    }
};

}  // namespace cupola::inline CUPOLA_ABI
