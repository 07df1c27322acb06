// SPDX-License-Identifier: Apache-2.0
//
// The contract of a device's queue, on which a training queues the work of its steps. It lists every member; a device
// that lacks one is rejected with one message.
//
//   D::Kernels                  the device that provides the operations: the device itself, or another
//   D::max_steps_in_flight      how many steps may be queued whose reports have not been read; 1 if work is complete
//                               when the call that queues it returns
//   D::host_memory              whether the host, and so every device of a training, can read the device's memory
//   D::copy_between(context, to, from, bytes)   queues a copy from another device's memory to the context's
//   D::Queue                    made as Queue(context, sizes) on the device's own thread, and used by that thread;
//                               landed() and finished() also by the thread that reads reports
//
// A queue has these members:
//
//   std::byte* status()                         `sizes.status_bytes` of the device, zero at first
//   void land(step)                             queues a copy of the status to where the host reads it
//   bool finished(step)                         whether that copy is there; throws DeviceError for work that failed
//   std::byte* landed(step)                     the copy of one of the last max_steps_in_flight steps
//   void mark(), bool reached()                 a point in the queue, and whether all work before it is complete
//   void mark_bucket(k)                         inside work: a point after which bucket k of the gradients is complete;
//                                               work of other streams can wait for it
//   BatchView take(replica, batch)              queues a copy of a batch's columns `sizes.columns` to the addresses
//                                               that recorded work reads, unless the status is not healthy, and returns
//                                               the copy; or returns the batch itself
//   BatchView take(replica, batch, T* to)       optional: the same, and the column "input" is also rounded to `to`
//   BatchView bring(batch)                      queues a copy of a batch that another device has taken, to an address
//                                               that this device reads, over its first replica's batch; or returns the
//                                               batch
//   void write(to, value)                       queues *to = value
//   void queue(work)                            queues work: `work()` is called now or later, once
//   void queue(recording, may_repeat, work)     the same for work that is queued in every step: if `may_repeat`, it may
//                                               be called only once, and the work that it queued is repeated
//                                               afterwards. It may be called, or repeated, together with the work of
//                                               the next recording, when that is queued, and at the latest before
//                                               anything else is queued or waited for
//   void set_constants(step, versions, write)   at the beginning of a step whose update may be repeated: `write(to, v)`
//                                               calls to.write(type, bytes) for each constant of version v of this step
//                                               and queues nothing. The update uses the version that the device
//                                               chooses: see ConstantsVersions
//   void update(healthy, work)                  inside such work: calls `work` such that it changes nothing if *healthy
//                                               is 0
//   void land_with_update()                     optional: inside such work, after everything that changes the status:
//                                               the last work of the update may make the copy of land()
//   std::span<const V> on_host(context, from, count, copy)   the values for the host, in place or through `copy`
//   void synchronize()                          waits until all work is complete
//   Recording                                   default-constructible, with `std::string refused() const`: why work is
//                                               not repeated; empty if it is. A type without members for a queue that
//                                               repeats nothing
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class Columns;

/// The sizes of the memory that a queue keeps.
struct QueueSizes {
    std::size_t status_bytes = 0;
    /// The replicas of the device, each with a batch of at most `batch_size` samples of the columns that a step reads.
    int replicas = 0;
    const Columns* columns = nullptr;
    std::int64_t batch_size = 0;
    /// The steps whose status is kept beside that of the step that runs, by a queue whose work is complete when it is
    /// queued: 0 where a step ends before the next begins.
    std::int64_t landed_steps = 0;
};

/// The versions of a step's constants, of which the device uses number *counter - base: where steps may be skipped, the
/// host does not know how many of the steps in flight are. A null counter stands for a single version.
struct ConstantsVersions {
    const std::int64_t* counter = nullptr;
    std::int64_t base = 0;
    int count = 1;
};

template <class D>
concept HasKernels = Device<D> && Device<typename D::Kernels>;

template <class D>
concept HasQueueProperties = requires(typename D::Kernels::Context& context, void* to, const void* from) {
    D::copy_between(context, to, from, std::size_t{0});
    { D::max_steps_in_flight } -> std::convertible_to<std::int64_t>;
    { D::host_memory } -> std::convertible_to<bool>;
};

namespace impl {

/// The work with which a concept checks a queue: nvcc accepts no lambda in a requires-expression.
struct NoWork {
    void operator()() const {}
};
struct NoConstants {
    template <class Constants>
    void operator()(Constants&, int) const {}
};

}  // namespace impl

template <class D>
concept HasQueue = requires(typename D::Queue& queue, typename D::Queue::Recording& recording, std::int64_t step,
                            const std::int32_t* healthy, float* to) {
    requires std::default_initializable<typename D::Queue::Recording>;
    { recording.refused() } -> std::convertible_to<std::string>;
    { queue.status() } -> std::same_as<std::byte*>;
    { queue.landed(step) } -> std::same_as<std::byte*>;
    { queue.finished(step) } -> std::same_as<bool>;
    { queue.reached() } -> std::same_as<bool>;
    queue.land(step);
    queue.mark();
    queue.mark_bucket(std::size_t{0});
    queue.write(to, 1.0F);
    queue.queue(impl::NoWork{});
    queue.queue(recording, true, impl::NoWork{});
    queue.set_constants(step, ConstantsVersions{}, impl::NoConstants{});
    queue.update(healthy, impl::NoWork{});
    queue.synchronize();
};

/// A device on which a training can queue its steps.
template <class D>
concept QueueingDevice = HasKernels<D> && HasQueueProperties<D> && HasQueue<D>;

/// Whether the queue of a device can repeat recorded work.
template <class D>
inline constexpr bool repeats_work = !std::is_empty_v<typename D::Queue::Recording>;

/// The error message for a type `D` on which a training cannot queue its steps; empty if it can.
template <class D>
[[nodiscard]] consteval CompileTimeMessage queue_diagnostic() {
    CompileTimeMessage message;
    if constexpr (QueueingDevice<D>) return message;
    message << short_type_name<D>() << " cannot queue the steps of a training: it lacks ";
    if constexpr (!HasKernels<D>) {
        message << "`Kernels`, the device whose operations it queues";
    } else if constexpr (!HasQueueProperties<D>) {
        message << "`static constexpr int max_steps_in_flight`, `static constexpr bool host_memory` or `copy_between`";
    } else {
        message << "a `Queue` with the members that <cupola/device/queue.hpp> lists";
    }
    return message;
}

}}  // namespace cupola::CUPOLA_ABI
