// SPDX-License-Identifier: Apache-2.0
//
// StatusBlock: the layout of one device's report of one step, in the device's memory. The host reads a copy of it when
// the step is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/abi.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/device.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The device scalars of a step, the sums of squares of the regularised parameters, where the replicas' gradients are not
/// finite, and of each of the device's batches the samples, a `LossReport`, an `IdReport` and the statistics. What is of the
/// batches is the device's own block; where a collective joins several processes, the blocks of all their devices follow.
class StatusBlock {
public:
    StatusBlock() = default;
    /// `replicas` are those of all devices, `batches` those of the device's replicas in one step, each with `buffers`
    /// statistics.
    /// `losses` is the number of reports of each batch beside that of their sum.
    StatusBlock(std::size_t regularized, std::size_t replicas, std::size_t batches, std::size_t losses,
                std::int64_t buffers)
        : buffers_(static_cast<std::size_t>(buffers)),
          batches_(batches),
          losses_(losses),
          not_finite_(scalars + regularized * sizeof(double)),
          told_(aligned(not_finite_ + replicas * sizeof(unsigned long long))),
          samples_(told_ + sizeof(std::int64_t)),
          reports_(aligned(samples_ + batches * sizeof(std::int64_t))),
          ids_(aligned(reports_ + batches * (1 + losses) * sizeof(LossReport))),
          statistics_(aligned(ids_ + batches * sizeof(IdReport))),
          bytes_(aligned(statistics_ + batches * buffers_ * sizeof(float))) {}

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// The bytes of what is of the batches, before gather() is called.
    [[nodiscard]] std::size_t own_bytes() const { return bytes_ - told_; }
    /// Makes room for the blocks of all `ranks`, of `own_bytes` bytes each: the largest of any device.
    void gather(std::size_t ranks, std::size_t own_bytes) {
        own_bytes_ = own_bytes;
        bytes_ = told_ + (1 + ranks) * own_bytes;
    }
    [[nodiscard]] std::span<const std::byte> own_block(std::byte* block) const { return {block + told_, own_bytes_}; }
    /// Empty unless gather() was called.
    [[nodiscard]] std::span<std::byte> blocks_of_ranks(std::byte* block) const {
        return {block + told_ + own_bytes_, own_bytes_ == 0 ? 0 : bytes_ - told_ - own_bytes_};
    }
    /// The place at which the members below find the block of a rank, which has the devices of this process.
    [[nodiscard]] std::byte* of_rank(std::byte* block, int rank) const {
        return block + static_cast<std::size_t>(1 + rank) * own_bytes_;
    }

    /// 0 once a gradient was not finite: no later update of the device changes parameters. It is 1 again at the end
    /// of a step that is skipped.
    [[nodiscard]] static std::int32_t* healthy(std::byte* block) { return reinterpret_cast<std::int32_t*>(block); }
    /// The step of the random numbers' key.
    [[nodiscard]] static std::uint32_t* step(std::byte* block) { return reinterpret_cast<std::uint32_t*>(block + 4); }
    /// The divisor of an average that is already the mean over the samples: the constant loss scale; where the loss has weights, times
    /// the step's weight per sample. For a collective, the weight of the device's samples times the loss scale.
    [[nodiscard]] static float* divisor(std::byte* block) { return reinterpret_cast<float*>(block + 8); }
    /// Whether the parameters were finite at the last check.
    [[nodiscard]] static std::int32_t* parameters_finite(std::byte* block) {
        return reinterpret_cast<std::int32_t*>(block + 12);
    }
    [[nodiscard]] static std::uint64_t* hash(std::byte* block) { return reinterpret_cast<std::uint64_t*>(block + 16); }
    /// The state of the loss scale after the step; and, where steps may be skipped, whether this or an earlier step has
    /// failed, in contrast to those that were skipped.
    [[nodiscard]] static LossScaleState* loss_scale(std::byte* block) {
        return reinterpret_cast<LossScaleState*>(block + 24);
    }
    [[nodiscard]] static std::int32_t* failed(std::byte* block) { return reinterpret_cast<std::int32_t*>(block + 40); }
    [[nodiscard]] static double* regularization(std::byte* block) { return reinterpret_cast<double*>(block + scalars); }
    /// For each replica of which this device reads the gradient: 1 + the last element that is not finite, 0 without one. It is
    /// written only in a step that is not healthy, and stays until the steps are given up.
    [[nodiscard]] unsigned long long* not_finite(std::byte* block, int replica) const {
        return reinterpret_cast<unsigned long long*>(block + not_finite_) + replica;
    }
    /// What the process tells all with the step; written only where blocks are gathered.
    [[nodiscard]] std::int64_t* told(std::byte* block) const { return reinterpret_cast<std::int64_t*>(block + told_); }
    /// The number of samples of a batch; written only where blocks are gathered.
    [[nodiscard]] std::int64_t* samples(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<std::int64_t*>(block + samples_) + batch;
    }
    /// The report of a batch: the sum of its losses.
    [[nodiscard]] LossReport* report(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<LossReport*>(block + reports_) + batch;
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

private:
    static constexpr std::size_t scalars = 64;
    std::size_t buffers_ = 0, batches_ = 0, losses_ = 0, not_finite_ = 0, told_ = 0, samples_ = 0, reports_ = 0,
                ids_ = 0, statistics_ = 0, bytes_ = 0, own_bytes_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
