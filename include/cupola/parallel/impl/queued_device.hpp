// SPDX-License-Identifier: Apache-2.0
//
// What a GPU keeps for the steps that are queued on it: each replica's batch where captured work reads it, the numbers
// that a step reports, on the device and in pinned memory, and the graphs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda_event.hpp>
#include <cupola/device/cuda_graph.hpp>
#include <cupola/device/cuda_pinned.hpp>
#include <cupola/device/step_constants.hpp>
#include <cupola/ops/cudnn/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// How many steps may be queued that have not been waited for, and the places for what steps report: one more, because
/// the oldest may be done and not yet looked at.
inline constexpr std::int64_t most_steps_ahead = 2;
inline constexpr std::size_t step_places = most_steps_ahead + 1;
[[nodiscard]] inline std::size_t place_of_step(std::int64_t step) {
    return static_cast<std::size_t>(step) % step_places;
}

/// The block of numbers that captured work reads and writes on the device. A copy of it is what a step reports.
class ReportBlock {
public:
    ReportBlock() = default;
    /// `batches` are those of the device's replicas in one step, each with `buffers` statistics.
    ReportBlock(std::size_t regularized, std::size_t batches, std::int64_t buffers)
        : buffers_(static_cast<std::size_t>(buffers)),
          reports_(aligned(cells + regularized * sizeof(double))),
          statistics_(aligned(reports_ + batches * sizeof(LossReport))),
          bytes_(aligned(statistics_ + batches * buffers_ * sizeof(float))) {}

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// 0 once a gradient was not finite.
    [[nodiscard]] static std::int32_t* sound(std::byte* block) { return reinterpret_cast<std::int32_t*>(block); }
    /// The step of PassKey, which random numbers are of.
    [[nodiscard]] static std::uint32_t* step(std::byte* block) { return reinterpret_cast<std::uint32_t*>(block + 4); }
    /// What an average that is already one is divided by: the loss's scale.
    [[nodiscard]] static float* loss_scale(std::byte* block) { return reinterpret_cast<float*>(block + 8); }
    /// Whether the parameters were finite when they were last checked.
    [[nodiscard]] static std::int32_t* finite(std::byte* block) { return reinterpret_cast<std::int32_t*>(block + 12); }
    [[nodiscard]] static std::uint64_t* hash(std::byte* block) { return reinterpret_cast<std::uint64_t*>(block + 16); }
    [[nodiscard]] static double* regularization(std::byte* block) { return reinterpret_cast<double*>(block + cells); }
    [[nodiscard]] LossReport* report(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<LossReport*>(block + reports_) + batch;
    }
    [[nodiscard]] float* statistics(std::byte* block, std::size_t batch) const {
        return reinterpret_cast<float*>(block + statistics_) + batch * buffers_;
    }

private:
    static constexpr std::size_t cells = 64;
    std::size_t buffers_ = 0, reports_ = 0, statistics_ = 0, bytes_ = 0;
};

/// Work that is queued step after step: by itself the first time, when libraries still load and choose, and captured
/// from the second time on.
struct RepeatedWork {
    const void* plan = nullptr;
    std::size_t batch = 0;
    bool packs = false, accumulates = false;
    bool seen = false;
    CapturedWork captured{};

    [[nodiscard]] bool same(const RepeatedWork& other) const {
        return plan == other.plan && batch == other.batch && packs == other.packs && accumulates == other.accumulates;
    }

    template <class Body>
    void queue(const CudaContext& context, bool may_be_captured, Body&& body) {
        if (seen && may_be_captured && !captured.captured() && captured.refused().empty())
            captured.capture(context, body);
        seen = true;
        if (may_be_captured && captured.captured()) {
            captured.launch(context);
        } else {
            body();
        }
    }
};

/// Made on its device's thread.
class QueuedDevice {
public:
    struct Sizes {
        int replicas = 0, accumulation = 1;
        std::int64_t features = 0, batch_size = 0;
        /// Floats that NCCL sums: the parameters and the number of samples, or none.
        std::int64_t sums = 0;
    };

    QueuedDevice(const ReportBlock& block, const Sizes& sizes, int ordinal)
        : block_(block),
          sizes_(sizes),
          batch_bytes_(aligned(static_cast<std::size_t>(sizes.features * sizes.batch_size) * sizeof(float))),
          label_bytes_(aligned(static_cast<std::size_t>(sizes.batch_size) * sizeof(std::int32_t))),
          on_device_(block.bytes(), text("the numbers that steps report of device ", ordinal)),
          batches_((batch_bytes_ + label_bytes_) * static_cast<std::size_t>(sizes.replicas),
                   text("the batches of device ", ordinal)),
          sums_(static_cast<std::size_t>(sizes.sums) * sizeof(float), text("the summed gradients of device ", ordinal)),
          arrived_(block.bytes() * step_places),
          constants_(CudaArena(StepConstants::most_bytes, text("the optimiser's constants of device ", ordinal))) {}

    [[nodiscard]] const ReportBlock& block() const { return block_; }
    [[nodiscard]] std::byte* on_device() { return on_device_.data(); }
    /// Where the numbers of a step arrive.
    [[nodiscard]] std::byte* arrived(std::int64_t step) {
        return arrived_.data() + place_of_step(step) * block_.bytes();
    }
    /// The number of a replica's batch among those of a step; replicas are counted from the device's first.
    [[nodiscard]] std::size_t batch_of(int replica, int part) const {
        return static_cast<std::size_t>(part * sizes_.replicas + replica);
    }
    [[nodiscard]] float* samples(int replica) { return reinterpret_cast<float*>(place_of(replica)); }
    [[nodiscard]] std::int32_t* labels(int replica) {
        return reinterpret_cast<std::int32_t*>(place_of(replica) + batch_bytes_);
    }
    [[nodiscard]] std::span<float> sums() {
        return {reinterpret_cast<float*>(sums_.data()), static_cast<std::size_t>(sizes_.sums)};
    }
    [[nodiscard]] StepConstants& constants() { return constants_; }

    [[nodiscard]] StepCells cells() {
        return {
            .sound = ReportBlock::sound(on_device()), .step = ReportBlock::step(on_device()), .constants = &constants_};
    }

    /// A replica's work on a batch, the same each time it is asked for.
    [[nodiscard]] RepeatedWork& work(const void* plan, std::size_t batch, bool packs, bool accumulates) {
        RepeatedWork wanted{.plan = plan, .batch = batch, .packs = packs, .accumulates = accumulates};
        for (RepeatedWork& known : works_) {
            if (known.same(wanted)) return known;
        }
        works_.push_back(std::move(wanted));
        return works_.back();
    }
    [[nodiscard]] RepeatedWork& update() { return update_; }
    /// Why something is queued piece by piece; empty while all that was captured could be.
    [[nodiscard, gnu::cold]] std::string refused() const {
        for (const RepeatedWork& known : works_) {
            if (!known.captured.refused().empty()) return text("the passes of a replica: ", known.captured.refused());
        }
        return update_.captured.refused().empty() ? std::string() : text("the update: ", update_.captured.refused());
    }
    template <class Visit>
    void for_each_captured(Visit&& visit) const {
        for (const RepeatedWork& known : works_) visit(known.captured);
        visit(update_.captured);
    }

    /// When a step's numbers have arrived, and when its gradients are there for other devices.
    [[nodiscard]] StepEvent& finished(std::int64_t step) { return finished_[place_of_step(step)]; }
    [[nodiscard]] StepEvent& gradients_ready() { return gradients_ready_; }
    /// How many steps were queued, this one counted.
    int count_step() { return steps_ = std::min(steps_ + 1, 1 << 20); }

private:
    [[nodiscard]] std::byte* place_of(int replica) {
        return batches_.data() + static_cast<std::size_t>(replica) * (batch_bytes_ + label_bytes_);
    }

    ReportBlock block_;
    Sizes sizes_;
    std::size_t batch_bytes_, label_bytes_;
    CudaArena on_device_, batches_, sums_;
    CudaPinned arrived_;
    StepConstants constants_;
    std::deque<RepeatedWork> works_;
    RepeatedWork update_;
    std::array<StepEvent, step_places> finished_;
    StepEvent gradients_ready_;
    int steps_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
