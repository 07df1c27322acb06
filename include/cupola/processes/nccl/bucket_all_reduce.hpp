// SPDX-License-Identifier: Apache-2.0
//
// NcclBucketAllReduce: sums a gradient over all ranks of NCCL bucket by bucket, on a stream separate from the compute
// stream, so that the backward pass continues while its first buckets are summed:
//
//   values[i] = sum over all ranks of values[i],   divisor = sum over all ranks of the rank's weight
//
// Each device has a Member. In each step one thread calls, in this order:
//
//   begin(step)
//   give(bucket, ready or stream)    once per bucket, when its local sum is queued
//   finish(stream)                   later work of the stream sees the sums
//   poll(step) or wait(step)         whether they are complete, with a deadline; the error names the missing ranks
//
// all_reduce_number(step, stream, number) in place of the first three sums one number of each rank alone; a sum of the
// gradient may follow in the same step.
//
// Buckets are contiguous ranges in the order of the backward pass: the first ends at the last element, each of the
// others ends where the one before begins, and the last begins at element 0. Every rank gives the same buckets: with
// more than two ranks NCCL's order of additions, and so the last bits of a sum, depend on them.
//
// If the elements are bfloat16, NCCL adds in bfloat16. The weight is always a float.
//
// In a training of several processes a member also gathers a block of bytes from each rank (RankBlocks) with the last
// bucket.
//
// A group of NCCL calls takes 50 to 100 us of host time (nccl_communicator.hpp), which is as long as a step of a small
// network. A step therefore has at most NcclAllReduce::max_groups groups per device, independent of the number of
// buckets: consecutive buckets are one sum, which is queued after the last of them, once they have 1/max_groups of the
// gradient's elements. The last group also contains the weight and the blocks. The threads of a process's devices queue
// their groups concurrently.
//
// The weight, which is the number of samples of the device's replicas, is stored before the first element and summed
// with the last bucket. The caller writes it in each step by a kernel, because a copy from the host would be one more
// call per step. A rank that finds a non-finite value before that bucket is ready may write NaN: every rank's divisor
// is NaN then.
//
// A bucket that is given out of order throws InvalidArgument and ends the step of every rank.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/pinned.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/processes/nccl/nccl_group.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Calls = impl::NcclCalls, class Element = float>
class NcclBucketAllReduce {
public:
    /// The number of floats before the first element: the weight, and zeros that keep the elements aligned to 16 bytes.
    static constexpr std::int64_t leading = 4;
    /// The number of floats of device memory for a gradient of `elements`.
    [[nodiscard]] static constexpr std::int64_t memory_floats(std::int64_t elements) {
        constexpr auto per_float = static_cast<std::int64_t>(sizeof(float) / sizeof(Element));
        return leading + (elements + per_float - 1) / per_float;
    }
    /// The maximum number of steps begun before the oldest is complete.
    static constexpr std::int64_t max_steps_in_flight = 4;

    class Member;

    /// Connects to the other processes, and returns when all ranks have started. `first_replicas`, one per device of
    /// this process, name the devices in errors. `gpus` are the devices' ordinals; 0, 1, ... if empty. Throws
    /// InvalidArgument and DeviceError.
    [[gnu::cold]] NcclBucketAllReduce(const NcclAllReduce& policy, const std::vector<int>& first_replicas,
                                      std::int64_t elements, const std::vector<int>& gpus = {}, Calls calls = {})
        : elements_(elements),
          max_groups_(policy.max_groups),
          members_(first_replicas.size()),
          group_(policy, static_cast<int>(first_replicas.size()), first_replicas, gpus, std::move(calls)) {
        require(elements > 0, "buckets of a gradient of ", elements, " elements");
        group_.start();
    }
    NcclBucketAllReduce(const NcclBucketAllReduce&) = delete;
    NcclBucketAllReduce& operator=(const NcclBucketAllReduce&) = delete;
    /// Ends together with all other ranks or, after a failure, when the devices no longer use the memory.
    ~NcclBucketAllReduce() {
        try {
            group_.finish();
        } catch (const DeviceError&) {  // the sums are aborted
        }
        if (!group_.failed()) return;
        for (const auto& member : members_) {
            if (member != nullptr) member->wait_for_broken_off();
        }
    }

    /// Makes the member of a device; called on a thread whose current CUDA device is that device. `memory` is device
    /// memory of memory_floats(elements) floats and must outlive this object. If `blocks` is not empty, each step
    /// gathers them.
    [[gnu::cold]] Member& join(int device, float* memory, const RankBlocks& blocks = {}) {
        auto& member = members_[static_cast<std::size_t>(device)];
        require(member == nullptr && memory != nullptr, "device ", device, " joins once, with memory for its sums");
        require(blocks.all.size() == blocks.mine.size() * static_cast<std::size_t>(group_.ranks()), "blocks of ",
                blocks.mine.size(), " bytes of ", group_.ranks(), " ranks have ", blocks.all.size());
        member.reset(new Member(group_, device, memory, elements_, max_groups_, blocks));
        return *member;
    }
    [[nodiscard]] Member& member(int device) { return *members_[static_cast<std::size_t>(device)]; }
    /// False once a rank has failed: no further sum will complete.
    [[nodiscard]] bool healthy() const { return !group_.failed(); }

    /// Aborts the sums of every rank, because `device` will not take part in them. Does not throw.
    void break_off(int device, std::int64_t step, const std::string& why) { group_.break_off(device, step, why); }

private:
    std::int64_t elements_;
    int max_groups_;
    std::vector<std::unique_ptr<Member>> members_;
    impl::NcclGroup<Calls> group_;
};

/// The part of one device. Once a rank has failed, each member function throws the DeviceError of the first failure.
template <class Calls, class Element>
class NcclBucketAllReduce<Calls, Element>::Member {
public:
    /// The array for the device's weighted local sums, with one element per element of the gradient.
    [[nodiscard]] std::span<Element> values() const {
        return {reinterpret_cast<Element*>(memory_ + leading), static_cast<std::size_t>(elements_)};
    }
    /// The address of the weight in device memory. It is written in each step before the last bucket is ready, or by
    /// the `local` of that bucket.
    [[nodiscard]] float* weight() const { return memory_; }

    /// Begins a step. Throws InvalidArgument if the previous step is not finished, or if max_steps_in_flight steps are
    /// not complete.
    void begin(std::int64_t step) {
        if (begun_) misused(text("step ", step, " begins before step ", step_, " was finished"));
        Slot& slot = slot_of(step);
        if (slot.step >= 0 && slot.step != step && !done(slot)) {
            misused(text("step ", step, " begins before step ", slot.step, " is complete: at most ",
                         max_steps_in_flight, " are in flight"));
        }
        begun_ = true;
        step_ = step;
        next_end_ = group_end_ = elements_;
        given_ = 0;
        slot.step = -1;
        slot.complete = false;
    }

    /// Gives a bucket, after whose local sum `ready` was recorded. For the last bucket of a group, returns when the sum
    /// of the group is queued. `local`, if given, queues the local sum of the group's buckets on the member's own
    /// stream, after `ready`. Throws InvalidArgument if the bucket is not the next one.
    void give(const GradientBucket& bucket, cudaEvent_t ready,
              FunctionRef<void(cudaStream_t, const GradientBucket& group)> local = {}) {
        if (!begun_) misused(text("bucket ", shown(bucket), " was given outside a step"));
        if (bucket.end != next_end_ || bucket.begin < 0 || bucket.begin >= bucket.end) {
            misused(text("bucket ", shown(bucket), " of step ", step_, " was given where ",
                         next_end_ == 0 ? std::string("all have been")
                                        : text("the next ends at element ", next_end_, " of ", elements_)));
        }
        impl::check_cuda(cudaStreamWaitEvent(stream_.get(), ready, 0), "cudaStreamWaitEvent");
        next_end_ = bucket.begin;
        ++given_;
        const int groups = steps_ < first_steps ? 1 : max_groups_;
        if (bucket.begin > 0 && (group_end_ - bucket.begin) * groups < elements_) return;
        const GradientBucket group{bucket.begin, std::exchange(group_end_, bucket.begin)};
        if (local) local(stream_.get(), group);
        sum(group);
    }

    /// The same, after all work that is queued on `stream`.
    void give(const GradientBucket& bucket, cudaStream_t stream) {
        impl::check_cuda(cudaEventRecord(ready_.get(), stream), "cudaEventRecord");
        give(bucket, ready_.get());
    }

    /// In place of begin(), give() and finish(): returns where later work of `stream` finds the sum of `*number` of all
    /// ranks, which earlier work of it has written; the blocks come with it.
    const float* all_reduce_number(std::int64_t step, cudaStream_t stream, const float* number) {
        begin(step);
        impl::check_cuda(cudaEventRecord(ready_.get(), stream), "cudaEventRecord");
        impl::check_cuda(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0), "cudaStreamWaitEvent");
        impl::check_cuda(cudaMemcpyAsync(memory_, number, sizeof(float), cudaMemcpyDeviceToDevice, stream_.get()),
                         "cudaMemcpyAsync");
        group_.queue(device_, stream_.get(), step_, [&](auto& group) {
            group.sum(std::span<float>(memory_, static_cast<std::size_t>(leading)));
            if (!blocks_.all.empty()) group.gather(blocks_.mine, blocks_.all);
        });
        next_end_ = 0;
        static_cast<void>(finish(stream));
        return memory_;
    }

    /// Makes `stream` wait for the sums of the step. Throws InvalidArgument if a bucket is missing.
    SumsOfGradient<Element> finish(cudaStream_t stream) {
        if (!begun_) misused("a step is finished that was not begun");
        if (next_end_ != 0) {
            misused(text("step ", step_, " is finished without the elements [0, ", next_end_, "): ", given_,
                         given_ == 1 ? " bucket was given" : " buckets were given"));
        }
        Slot& slot = slot_of(step_);
        impl::check_cuda(cudaEventRecord(slot.summed.get(), stream_.get()), "cudaEventRecord");
        impl::check_cuda(cudaStreamWaitEvent(stream, slot.summed.get(), 0), "cudaStreamWaitEvent");
        slot.step = step_;
        begun_ = false;
        if (steps_ < first_steps) {
            wait(step_);
            if (given_ > 0) ++steps_;  // a step of a number alone has loaded no kernel of the sums
        }
        return {values(), memory_};
    }

    /// Whether the sums of a step are complete. Throws DeviceError if they are not complete at the deadline, which is
    /// counted from the first call after the previous step was complete.
    [[nodiscard]] bool poll(std::int64_t step) {
        Slot& slot = finished_slot(step);
        if (slot.complete) return true;
        if (polled_ != step) {
            polled_ = step;
            polled_since_ = group_.now();
        }
        return slot.complete = group_.poll(device_, slot.summed.get(), step, polled_since_);
    }
    /// Waits until the sums of a step are complete. Throws DeviceError at the deadline.
    void wait(std::int64_t step) {
        Slot& slot = finished_slot(step);
        if (slot.complete) return;
        group_.wait(device_, slot.summed.get(), step);
        slot.complete = true;
    }

    /// Called between steps: sends `mine`, which has the same size in all calls, to all ranks, and receives theirs in
    /// the order of the ranks, unless `all` is empty; both are in host memory. Waits, with the same deadline and
    /// errors.
    [[gnu::cold]] void gather(const ExchangeName& name, std::span<const std::byte> mine, std::span<std::byte> all) {
        if (begun_) misused(text(name.operation, " is exchanged before step ", step_, " was finished"));
        const impl::NcclWork work{name.operation, name.step};
        const std::size_t bytes = mine.size(), bytes_of_all = bytes * static_cast<std::size_t>(group_.ranks());
        if (exchange_.size() == 0) {
            exchange_on_host_ = impl::CudaPinned(bytes + bytes_of_all);
            exchange_ = CudaArena(bytes + bytes_of_all, text("what the processes of device ", device_, " exchange"));
        }
        require(exchange_.size() == bytes + bytes_of_all && (all.empty() || all.size() == bytes_of_all),
                "an exchange of ", bytes, " bytes, and of ", all.size(), " of all ranks, where the first had ",
                exchange_.size(), " together");
        std::memcpy(exchange_on_host_.data(), mine.data(), bytes);
        const auto copy = [&](std::byte* to, const std::byte* from, std::size_t count, cudaMemcpyKind kind) {
            impl::check_cuda(cudaMemcpyAsync(to, from, count, kind, stream_.get()), "cudaMemcpyAsync");
        };
        copy(exchange_.data(), exchange_on_host_.data(), bytes, cudaMemcpyHostToDevice);
        group_.queue(device_, stream_.get(), work, [&](auto& group) {
            group.gather({exchange_.data(), bytes}, {exchange_.data() + bytes, bytes_of_all});
        });
        if (!all.empty())
            copy(exchange_on_host_.data() + bytes, exchange_.data() + bytes, bytes_of_all, cudaMemcpyDeviceToHost);
        impl::check_cuda(cudaEventRecord(exchange_event_.get(), stream_.get()), "cudaEventRecord");
        group_.wait(device_, exchange_event_.get(), work);
        if (!all.empty()) std::memcpy(all.data(), exchange_on_host_.data() + bytes, bytes_of_all);
    }

    /// Waits for an event that was recorded after a step's sums, with the same deadline and errors.
    void wait_for(cudaEvent_t event, std::int64_t step) { group_.wait(device_, event, step); }

    /// Aborts the sums of every rank, because this device will not take part in them. Does not throw.
    void break_off(const std::string& why) { group_.break_off(device_, step_, why); }
    /// After a failure: waits for an event of any stream of the device that was recorded after sums, so that their
    /// memory may be freed. Ends the process if this takes longer than abort_seconds.
    void wait_for_broken_off(cudaEvent_t event) { group_.wait_for_broken_off(device_, event); }
    [[nodiscard]] bool healthy() const { return !group_.failed(); }

private:
    friend class NcclBucketAllReduce;

    /// Loading kernels and instantiating graphs may wait for all work of a device, so a sum that waits for another
    /// device must not run at the same time: the first steps that sum the gradient have one group, after all buckets,
    /// which is waited for, and so is each all_reduce_number() of theirs and of the steps between them.
    static constexpr int first_steps = 3;

    struct Slot {
        std::int64_t step = -1;
        bool complete = false;
        impl::CudaEvent summed;
    };

    Member(impl::NcclGroup<Calls>& group, int device, float* memory, std::int64_t elements, int max_groups,
           const RankBlocks& blocks)
        : group_(group),
          device_(device),
          memory_(memory),
          elements_(elements),
          max_groups_(max_groups),
          blocks_(blocks) {
        impl::check_cuda(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        for (Slot& slot : slots_) {
            impl::check_cuda(cudaEventCreateWithFlags(slot.summed.out(), cudaEventDisableTiming),
                             "cudaEventCreateWithFlags");
        }
        for (impl::CudaEvent* event : {&ready_, &last_, &exchange_event_})
            impl::check_cuda(cudaEventCreateWithFlags(event->out(), cudaEventDisableTiming),
                             "cudaEventCreateWithFlags");
        // The floats after the weight, which are summed with it, stay 0.
        impl::check_cuda(cudaMemsetAsync(memory_, 0, leading * sizeof(float), stream_.get()), "cudaMemsetAsync");
        impl::check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    }

    [[nodiscard]] Slot& slot_of(std::int64_t step) {
        require(step >= 0, "a step has a number from 0 on, not ", step);
        return slots_[static_cast<std::size_t>(step % max_steps_in_flight)];
    }
    [[nodiscard]] Slot& finished_slot(std::int64_t step) {
        Slot& slot = slot_of(step);
        if (slot.step != step) misused(text("step ", step, " is waited for, which was not finished"));
        return slot;
    }
    [[nodiscard]] bool done(Slot& slot) {
        return slot.complete || (slot.complete = group_.poll(device_, slot.summed.get(), slot.step, group_.now()));
    }
    [[nodiscard]] static std::string shown(const GradientBucket& bucket) {
        return text('[', bucket.begin, ", ", bucket.end, ')');
    }

    /// Queues the sum of a group of buckets; the last group also has the weight and the blocks.
    void sum(const GradientBucket& buckets) {
        const bool last = buckets.begin == 0;
        const auto begin = static_cast<std::size_t>(buckets.begin), end = static_cast<std::size_t>(buckets.end);
        group_.queue(device_, stream_.get(), step_, [&](auto& group) {
            if constexpr (std::same_as<Element, float>) {
                const std::size_t before = last ? static_cast<std::size_t>(leading) : 0;
                group.sum(std::span(memory_ + leading + begin - before, end - begin + before));
            } else {
                // The weight is a float and is summed separately.
                if (last) group.sum(std::span<float>(memory_, static_cast<std::size_t>(leading)));
                group.sum(values().subspan(begin, end - begin));
            }
            if (last && !blocks_.all.empty()) group.gather(blocks_.mine, blocks_.all);
        });
    }
    /// Aborts the sums, which the other ranks wait for, and throws.
    [[noreturn, gnu::cold]] void misused(const std::string& what) {
        const std::string message = text("device ", device_, ": ", what);
        if (!group_.failed()) break_off(message);
        throw InvalidArgument(message);
    }
    void wait_for_broken_off() {
        if (cudaEventRecord(last_.get(), stream_.get()) == cudaSuccess)
            group_.wait_for_broken_off(device_, last_.get());
    }

    impl::NcclGroup<Calls>& group_;
    int device_;
    float* memory_;
    std::int64_t elements_;
    int max_groups_;
    RankBlocks blocks_;
    /// The buffers of gather(), on the device and on the host: this rank's block, then those of all ranks.
    CudaArena exchange_;
    impl::CudaPinned exchange_on_host_;
    impl::CudaStream stream_;
    impl::CudaEvent ready_, last_, exchange_event_;
    std::array<Slot, max_steps_in_flight> slots_;
    bool begun_ = false;
    /// `group_end_` is the end of the buckets that were given and are not yet queued.
    std::int64_t step_ = 0, next_end_ = 0, group_end_ = 0, polled_ = -1;
    int given_ = 0, steps_ = 0;
    double polled_since_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
