// SPDX-License-Identifier: Apache-2.0
//
// The queue of `Cuda`: the context's stream, with at most three steps whose reports have not been read. Work that is
// queued in every step is launched directly the first time, when libraries still load and choose algorithms. The second
// time it is captured as a CUDA graph, together with the kernel of the writes and the batch before it, whose arguments
// are replaced in each launch. A captured piece of work is held back until something else is queued on the context: if
// that is the work of another recording, both become one graph, as the last passes of a step and its update do. The
// numbers that a step reports are copied to pinned memory, by the kernel of the update if no later work of the step
// changes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/event.hpp>
#include <cupola/device/cuda/pinned.hpp>
#include <cupola/device/cuda/step_constants.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/parallel/cuda/kept_batches.hpp>
#include <cupola/parallel/cuda/recording.hpp>
#include <cupola/parallel/cuda/versioned_constants.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step/step_recordings.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class CudaQueue {
public:
    /// The recording of work that is queued in every step.
    using Recording = impl::CudaRecording;

    CudaQueue(CudaContext& context, const QueueSizes& sizes)
        : context_(context),
          sizes_(sizes),
          status_(sizes.status_bytes + sizeof(impl::PinnedUnit),
                  text("the numbers that steps report of device ", context.ordinal())),
          batches_(context, sizes),
          landed_(sizes.status_bytes * slot_count),
          constants_(CudaArena(impl::StepConstants::max_bytes,
                               text("the optimiser's constants of device ", context.ordinal()))) {
        set_step_scalars(nullptr);
    }
    CudaQueue(const CudaQueue&) = delete;
    CudaQueue& operator=(const CudaQueue&) = delete;
    ~CudaQueue() {
        if (holds()) context_.discard_joined();
    }

    [[nodiscard]] std::byte* status() { return status_.data(); }
    void land(std::int64_t step) {
        launch_writes();
        if (!std::exchange(landed_with_update_, false)) {
            impl::queue_copy_to_pinned(context_, status(), landed(step), sizes_.status_bytes);
            ++counted_.all;
        }
        finished_[slot_of(step)].record(context_);
        last_ = std::exchange(counted_, {});
    }
    /// The launches of the last step.
    [[nodiscard]] const StepLaunches& launches() const { return last_; }
    [[nodiscard]] std::byte* landed(std::int64_t step) { return landed_.data() + slot_of(step) * sizes_.status_bytes; }
    [[nodiscard]] bool finished(std::int64_t step) const { return finished_[slot_of(step)].happened(); }
    void mark() { mark_.record(context_); }
    [[nodiscard]] bool reached() const { return mark_.happened(); }
    /// In a captured pass the event is a node of the graph, for which later work of other streams can wait.
    void mark_bucket(std::size_t k) {
        context_.launch_deferred();
        while (buckets_.size() <= k) buckets_.emplace_back();
        buckets_[k].record(context_, capturing_);
    }
    /// The events recorded after finished() and the marks, for callers that wait for them.
    [[nodiscard]] cudaEvent_t finished_event(std::int64_t step) const { return finished_[slot_of(step)].get(); }
    [[nodiscard]] cudaEvent_t mark_event() const { return mark_.get(); }
    /// Launches work that is held back first, since it may contain the mark.
    [[nodiscard]] cudaEvent_t bucket_event(std::size_t k) const {
        context_.launch_joined();
        return buckets_[k].get();
    }

    BatchView take(int replica, const BatchView& batch) { return take<BFloat16>(replica, batch, nullptr); }
    /// Also rounds the column "input", of floats, to `rounded`, unless that is null.
    template <class T>
    BatchView take(int replica, const BatchView& batch, T* rounded) {
        const BatchSpan kept = batches_.of(replica);
        impl::queue_take_batch(context_, batch, kept, &impl::step_status(status())->healthy, rounded);
        return kept.view(batch.size);
    }
    BatchView bring(const BatchView& batch) { return batches_.bring(context_, batch); }
    template <class V>
    void write(V* to, const V& value) {
        if (holds()) context_.launch_joined();
        landed_with_update_ = false;
        impl::queue_set(context_, to, value);
    }

    template <class Work>
    void queue(Work&& work) {
        launch_writes();
        landed_with_update_ = false;
        run(work);
        end_work();
    }
    template <class Work>
    void queue(Recording& recording, bool may_repeat, Work&& work) {
        const bool repeats = recording.seen && may_repeat;
        if (repeats && holds() && held_ != &recording) {
            const auto both = [&] {
                launch_first();
                held_work_();
                context_.join_deferred();
                work();
            };
            context_.discard_joined();
            if (Recording::Graph& graph = recording.after(held_, first_kernel()); captured(graph, both)) {
                held_work_.reset();
                return launch(graph);
            }
            launch_held();
        }
        if (holds()) context_.launch_joined();
        const auto* const writes = context_.joined_as<impl::JoinedWrites>();
        begins_with_writes_ = repeats && writes != nullptr;
        if (begins_with_writes_) {
            writes_ = *writes;
            context_.discard_joined();
        }
        launch_writes();
        landed_with_update_ = false;
        recording.seen = true;
        if (!repeats) {
            counted_.captured = false;
            run(work);
            return end_work();
        }
        held_ = &recording;
        held_work_.hold(work);
        context_.joined<Held>().queue = this;
    }

    /// Copies the constants to device memory, from which the launches of the update read them. An update with a force
    /// has other kernels, and so constants of its own.
    template <class Write>
    void set_constants(std::int64_t step, const ConstantsVersions& versions, Write&& write, bool has_force = false) {
        if (has_force && with_force_ == nullptr) {
            with_force_ = std::make_unique<impl::VersionedConstants>(
                CudaArena(impl::StepConstants::max_bytes, "the constants of a step's update with a force"));
        }
        current_ = has_force ? with_force_.get() : &constants_;
        set_step_scalars(&current_->of_step());
        impl::queue_set(context_, landing(), landed(step));
        current_->queue(context_, versions, write);
    }
    /// The kernels that change parameters read `healthy` from device memory.
    template <class Work>
    void update(const std::int32_t*, Work&& work) {
        current_->of_step().rewind();
        work();
    }
    /// The same for work that is not repeated and no part of the step's update: its constants are arguments of its
    /// launches.
    template <class Work>
    void update_by_value(const std::int32_t*, Work&& work) {
        set_step_scalars(nullptr);
        work();
        context_.launch_joined();
        set_step_scalars(&current_->of_step());
    }

    /// If the last queued work is an update, makes its kernel copy the status. It is not if steps may be skipped: the
    /// work at the end of such a step, which changes the status, is queued after the update.
    void land_with_update() {
        auto* const updates = context_.joined_as<impl::JoinedUpdatesBase>();
        constexpr std::size_t unit = sizeof(impl::PinnedUnit);
        if (updates == nullptr || sizes_.status_bytes % unit != 0) return;
        updates->add_copy({.from = reinterpret_cast<const impl::PinnedUnit*>(status()),
                           .place = reinterpret_cast<impl::PinnedUnit* const*>(landing()),
                           .units = static_cast<std::int64_t>(sizes_.status_bytes / unit)});
        landed_with_update_ = true;
    }

    template <class V>
    [[nodiscard]] static std::span<const V> on_host(CudaContext& context, const V* from, std::size_t count,
                                                    std::vector<V>& copy) {
        copy.resize(count);
        Cuda::copy_to_host(context, reinterpret_cast<std::byte*>(copy.data()), reinterpret_cast<const std::byte*>(from),
                           count * sizeof(V));
        return copy;
    }
    void synchronize() const { context_.synchronize(); }

private:
    /// Held-back work as joined work of the context: the next queued work launches it.
    struct Held {
        using Base = Held;

        /// The queue counts its launches.
        int launch(const CudaContext&) const {
            queue->launch_held();
            return 0;
        }

        CudaQueue* queue = nullptr;
    };
    [[nodiscard]] bool holds() const {
        const Held* const held = context_.joined_as<Held>();
        return held != nullptr && held->queue == this;
    }
    void launch_held() {
        Recording::Graph& graph = held_->after(nullptr, first_kernel());
        const auto alone = [&] {
            launch_first();
            held_work_();
        };
        if (captured(graph, alone)) {
            launch(graph);
        } else {
            counted_.captured = false;
            counted_.all += begins_with_writes_ ? 1 : 0;
            run(alone);
            end_work();
        }
        held_work_.reset();
    }
    /// The writes before the work that is held back.
    [[nodiscard]] const void* first_kernel() const { return begins_with_writes_ ? writes_.kernel(context_) : nullptr; }
    void launch_first() const {
        if (begins_with_writes_) writes_.launch(context_);
    }
    /// Whether the work is captured now or has been before.
    template <class Work>
    bool captured(Recording::Graph& graph, Work& work) {
        if (graph.captured.captured()) return true;
        if (!graph.captured.refused().empty()) return false;
        landed_with_update_ = false;
        capturing_ = true;
        try {
            graph.captured.capture(context_, [&] { run(work); });
        } catch (...) {
            capturing_ = false;
            throw;
        }
        capturing_ = false;
        graph.lands = std::exchange(landed_with_update_, false);
        return graph.captured.captured();
    }
    void launch(const Recording::Graph& graph) {
        if (graph.first != nullptr) writes_.replace_first_of(graph.captured, context_);
        graph.captured.launch(context_);
        landed_with_update_ = graph.lands;
        counted_.all += graph.captured.launches();
        counted_.in_graphs += graph.captured.launches();
        ++counted_.graphs;
        end_work();
    }
    /// Launches the pending writes together with the pending batch.
    void launch_writes() {
        context_.launch_joined();
        counted_.all += context_.take_joined_launches();
    }
    /// The graph counts the joined work that a function has queued.
    void end_work() {
        context_.launch_joined();
        static_cast<void>(context_.take_joined_launches());
    }
    /// Work that is queued later reads the gradients of parameters, so writing them may be deferred to the end.
    template <class Work>
    void run(Work& work) {
        const CudaContext::DeferScope scope(context_);
        work();
        context_.launch_joined();
        context_.launch_deferred();
    }
    static constexpr std::size_t slot_count = Cuda::max_steps_in_flight;
    [[nodiscard]] static std::size_t slot_of(std::int64_t step) { return static_cast<std::size_t>(step) % slot_count; }

    void set_step_scalars(impl::StepConstants* constants) {
        context_.set_step_scalars({.healthy = &impl::step_status(status())->healthy,
                                   .step = &impl::step_status(status())->step,
                                   .constants = constants});
    }
    /// The device memory that holds the address in pinned memory to which the update of a step copies the status.
    [[nodiscard]] std::byte** landing() { return reinterpret_cast<std::byte**>(status() + sizes_.status_bytes); }

    CudaContext& context_;
    QueueSizes sizes_;
    CudaArena status_;
    impl::KeptBatches batches_;
    impl::CudaPinned landed_;
    impl::VersionedConstants constants_;
    /// Made for the first update with a force.
    std::unique_ptr<impl::VersionedConstants> with_force_;
    impl::VersionedConstants* current_ = &constants_;
    /// The events that mark that the numbers of each step are in pinned memory.
    std::array<impl::StepEvent, slot_count> finished_;
    impl::StepEvent mark_;
    /// A deque, so that an event keeps its address.
    std::deque<impl::StepEvent> buckets_;
    /// The recording whose work is held back, or null; and the writes and the batch before it, which are in its graph.
    Recording* held_ = nullptr;
    impl::JoinedWrites writes_{};
    bool begins_with_writes_ = false;
    impl::HeldWork held_work_;
    StepLaunches counted_, last_;
    bool capturing_ = false;
    /// Whether the work queued last has copied the status as land() would.
    bool landed_with_update_ = false;
};

static_assert(QueueingDevice<Cuda>);

}}  // namespace cupola::CUPOLA_ABI
