// SPDX-License-Identifier: Apache-2.0
//
// StepStatus and StatusLayout: the numbers that one step of a device reports, in the device's memory. The host reads a
// copy of them when the step is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <cupola/core/abi.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The numbers that a step of a device has once, whatever the network. Kernels write most of them.
struct StepStatus {
    /// 0 once a gradient was not finite: no later update of the device changes parameters. It is 1 again at the end of
    /// a step that is skipped.
    std::int32_t healthy;
    /// The step of the random numbers' key.
    std::uint32_t step;
    /// The divisor of an average that is already the mean over the samples: the constant loss scale; where the loss has
    /// weights, times the step's weight per sample. For a collective, the weight of the device's samples times the loss
    /// scale.
    float divisor;
    /// Whether the parameters were finite at the last check, and their hash.
    std::int32_t parameters_finite;
    std::uint64_t hash;
    /// The state of the loss scale after the step.
    LossScaleState loss_scale;
    /// Where steps may be skipped: whether this or an earlier step has failed, in contrast to those that were skipped.
    std::int32_t failed;
};
// The host and the device agree on the bytes, and a copy of them is a copy of the struct.
static_assert(std::is_trivially_copyable_v<StepStatus> && std::is_standard_layout_v<StepStatus>);
static_assert(offsetof(StepStatus, healthy) == 0 && offsetof(StepStatus, step) == 4 &&
              offsetof(StepStatus, divisor) == 8 && offsetof(StepStatus, parameters_finite) == 12 &&
              offsetof(StepStatus, hash) == 16 && offsetof(StepStatus, loss_scale) == 24 &&
              offsetof(StepStatus, failed) == 40);

/// The status that a block begins with: of the device's block an address in its memory, of a copy one that the host
/// reads.
[[nodiscard]] inline StepStatus* step_status(std::byte* block) { return reinterpret_cast<StepStatus*>(block); }

/// The results of a replica's batch in a step: its report, those of the losses where there are several, that of its ids
/// where the network reads ids, and its statistics.
struct BatchResult {
    const LossReport* report = nullptr;
    const LossReport* of_losses = nullptr;
    const IdReport* bad_id = nullptr;
    const float* statistics = nullptr;
};

/// Where the parts of a block are: a StepStatus, the sums of squares of the regularised parameters, where the replicas'
/// gradients are not finite, and for each of the device's batches the number of samples, a `LossReport`, an `IdReport`
/// and the statistics. The part about the batches is the device's own block; where a collective joins several
/// processes, the blocks of all their devices follow.
class StatusLayout {
public:
    StatusLayout() = default;
    /// `replicas` are those of all devices, `batches` those of the device's replicas in one step, each with `buffers`
    /// statistics.
    /// `losses` is the number of reports of each batch beside that of their sum.
    StatusLayout(std::size_t regularized, std::size_t replicas, std::size_t batches, std::size_t losses,
                 std::int64_t buffers)
        : buffers_(static_cast<std::size_t>(buffers)),
          batches_(batches),
          losses_(losses),
          not_finite_(scalars + regularized * sizeof(double)),
          flags_(aligned(not_finite_ + replicas * sizeof(unsigned long long))),
          samples_(flags_ + sizeof(std::int64_t)),
          reports_(aligned(samples_ + batches * sizeof(std::int64_t))),
          ids_(aligned(reports_ + batches * (1 + losses) * sizeof(LossReport))),
          statistics_(aligned(ids_ + batches * sizeof(IdReport))),
          bytes_(aligned(statistics_ + batches * buffers_ * sizeof(float))) {}

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// The bytes of the part about the batches, before gather() is called.
    [[nodiscard]] std::size_t own_bytes() const { return bytes_ - flags_; }
    /// Makes room for the blocks of all `ranks`, of `own_bytes` bytes each: the largest of any device.
    void gather(std::size_t ranks, std::size_t own_bytes) {
        own_bytes_ = own_bytes;
        bytes_ = flags_ + (1 + ranks) * own_bytes;
    }
    [[nodiscard]] std::span<const std::byte> own_block(std::byte* block) const { return {block + flags_, own_bytes_}; }
    /// Empty unless gather() was called.
    [[nodiscard]] std::span<std::byte> blocks_of_ranks(std::byte* block) const {
        return {block + flags_ + own_bytes_, own_bytes_ == 0 ? 0 : bytes_ - flags_ - own_bytes_};
    }
    /// The place at which the members below find the block of a rank, which has the devices of this process.
    [[nodiscard]] std::byte* of_rank(std::byte* block, int rank) const {
        return block + static_cast<std::size_t>(1 + rank) * own_bytes_;
    }

    [[nodiscard]] static double* regularization(std::byte* block) { return reinterpret_cast<double*>(block + scalars); }
    /// For each replica of which this device reads the gradient: 1 + the last element that is not finite, 0 without
    /// one. It is written only in a step that is not healthy, and stays until the steps are given up.
    [[nodiscard]] unsigned long long* not_finite(std::byte* block, int replica) const {
        return reinterpret_cast<unsigned long long*>(block + not_finite_) + replica;
    }
    /// The flags that the process sets for all with the step; written only where blocks are gathered.
    [[nodiscard]] std::int64_t* flags(std::byte* block) const {
        return reinterpret_cast<std::int64_t*>(block + flags_);
    }
    /// The number of samples of a batch; written only where blocks are gathered.
    [[nodiscard]] std::int64_t* samples(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<std::int64_t*>(block + samples_) + batch;
    }
    /// The report of a batch: the sum of its losses.
    [[nodiscard]] LossReport* report(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<LossReport*>(block + reports_) + batch;
    }
    /// The reports of all batches of the device.
    [[nodiscard]] std::span<const LossReport> reports(std::byte* block) const {
        return span_of<const LossReport>(report(block, 0), batches_);
    }
    /// The reports of the losses of a batch, where there are several: one per loss.
    [[nodiscard]] LossReport* reports_of_losses(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<LossReport*>(block + reports_) + batches_ + batch * losses_;
    }
    /// The first id of a batch that is out of range; written only where the network reads ids.
    [[nodiscard]] IdReport* bad_id(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<IdReport*>(block + ids_) + batch;
    }
    [[nodiscard]] float* statistics(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<float*>(block + statistics_) + batch * buffers_;
    }
    [[nodiscard]] BatchResult result(std::byte* block, std::size_t batch) const {
        return {.report = report(block, batch),
                .of_losses = reports_of_losses(block, batch),
                .bad_id = bad_id(block, batch),
                .statistics = statistics(block, batch)};
    }

private:
    /// The bytes before the sums of squares.
    static constexpr std::size_t scalars = 64;
    static_assert(sizeof(StepStatus) <= scalars);
    std::size_t buffers_ = 0, batches_ = 0, losses_ = 0, not_finite_ = 0, flags_ = 0, samples_ = 0, reports_ = 0,
                ids_ = 0, statistics_ = 0, bytes_ = 0, own_bytes_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
