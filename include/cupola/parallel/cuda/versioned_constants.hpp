// SPDX-License-Identifier: Apache-2.0
//
// VersionedConstants: the optimiser's constants of a step, which are copied to device memory, from which the launches
// of the update read them. If earlier steps may still be skipped, there is one version per number that the update can
// have.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/step_constants.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/ops/cuda/training_step.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class VersionedConstants {
public:
    explicit VersionedConstants(CudaArena memory) : constants_(std::move(memory)) {}

    [[nodiscard]] StepConstants& of_step() { return constants_; }

    /// Calls write(constants, version) for each version, and queues the copy of all of them.
    template <class Write>
    void queue(CudaContext& context, const ConstantsVersions& versions, Write&& write) {
        all_.clear();
        for (int v = 0; v < versions.count; ++v) {
            constants_.begin();
            write(constants_, v);
            const std::span<const std::byte> values = constants_.values();
            if (versions.count > 1) all_.insert(all_.end(), values.begin(), values.end());
        }
        if (versions.count == 1) {
            queue_constants(context, constants_);
        } else {
            queue_constants(context, constants_, versions, all_);
        }
    }

private:
    StepConstants constants_;
    /// All versions of a step's constants, stored consecutively.
    std::vector<std::byte> all_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
