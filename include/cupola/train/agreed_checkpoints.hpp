// SPDX-License-Identifier: Apache-2.0
//
// AgreedCheckpoints{training, directory}: the checkpoint folder of a training of several processes, for
// CheckpointEvery, which must then be a callback on each of them. Process 0 writes; the others have no directory:
//
//   std::optional<CheckpointDirectory> directory;
//   if (mpi.number() == 0) directory.emplace("run1");
//   AgreedCheckpoints agreed(training, directory ? &*directory : nullptr);
//   fit(training, batches, {.steps = 1000}, CheckpointEvery{training, agreed});
//
// Before a checkpoint is written, the processes compare its contents: a difference throws ReplicasDiffer, and the
// checkpoint is not written. After writing it, process 0 reports the result to the others; its error ends the run on
// all of them. In a training of one process the directory is used directly.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/train/impl/checkpoint_digest.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class AgreedCheckpoints {
public:
    /// `directory` is null on all processes except the first. Both arguments must outlive the object.
    template <class Training>
    AgreedCheckpoints(Training& training, CheckpointDirectory* directory)
        : AgreedCheckpoints(training.run_policy(), directory) {}

    /// See CheckpointDirectory.
    void require_best_of(std::span<const LayerInfo> layers) {
        if (directory_ != nullptr) directory_->require_best_of(layers);
    }

    /// Whether all processes want to save. `step` is named in the error if a process does not respond.
    [[nodiscard]] bool all_save(bool wants, std::int64_t step = -1) {
        return policy_.largest({operation, step}, wants ? 0 : 1) == 0;
    }

    /// Returns make() if it succeeds on all processes with the same result.
    [[nodiscard, gnu::cold]] Checkpoint same_on_all(FunctionRef<Checkpoint()> make, std::int64_t at = -1) {
        Checkpoint checkpoint;
        policy_.attempt({operation, at}, [&] { checkpoint = make(); });
        const std::int64_t step = checkpoint.state.step;
        if (const auto other = policy_.first_difference({operation, step}, [&] { return impl::digest_of(checkpoint); }))
            throw ReplicasDiffer(text("process ", other->first, " has another ", other->second, " than process ",
                                      policy_.number_at_start(0), " in the checkpoint of step ", step,
                                      ", which is not written: a process computed a different result"),
                                 step, other->first);
        return checkpoint;
    }

    void save(std::span<const LayerInfo> layers, const Checkpoint& checkpoint) {
        write(checkpoint, [&] { directory_->save(layers, checkpoint); });
    }
    /// The metric of process 0 determines which checkpoint is the best.
    void save_best(std::span<const LayerInfo> layers, const Checkpoint& checkpoint, double metric) {
        write(checkpoint, [&] { directory_->save_best(layers, checkpoint, metric); });
    }
    void replace_best(std::span<const LayerInfo> layers, const Checkpoint& checkpoint, double metric) {
        write(checkpoint, [&] { directory_->replace_best(layers, checkpoint, metric); });
    }

private:
    static constexpr std::string_view operation = "the checkpoint";

    [[gnu::cold]] AgreedCheckpoints(RunPolicy& policy, CheckpointDirectory* directory)
        : policy_(policy), directory_(directory) {
        const int number = policy.process().number;
        require((directory != nullptr) == (number == 0), "process ", number,
                directory == nullptr ? " has no directory of checkpoints, and it is the one that writes them"
                                     : " has a directory of checkpoints, which process 0 alone writes");
    }

    [[gnu::cold]] void write(const Checkpoint& checkpoint, FunctionRef<void()> by_first) {
        policy_.attempt({operation, checkpoint.state.step}, [&] {
            if (directory_ != nullptr) by_first();
        });
    }

    RunPolicy& policy_;
    CheckpointDirectory* directory_;
};

}}  // namespace cupola::CUPOLA_ABI
