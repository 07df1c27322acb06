// SPDX-License-Identifier: Apache-2.0
//
// The interface of an agreement policy: how the replicas of a training agree. It is one template argument of
// `DataParallel`, of one of five kinds. No other part of a training depends on the kind.
//
//   AveragesRows      a function of the gradient rows of all replicas, which are in one process (`ConcatMean`, a
//                     user-defined policy): parallel/averaging.hpp
//   AveragesBuckets   a collective: one object for the devices of a process, which receives buckets of the gradient
//                     during the backward pass; each wait for it has a deadline. It may span processes
//                     (`NcclAllReduce`)
//   SpansProcesses    a function of the gradient rows, or a sum, of the replicas of several processes
//   AgreesOnCentre    a rule by which replicas with parameters of their own agree on a centre every K steps, around a
//                     policy of another kind (`Periodic`, `ElasticAveraging`)
//   TrainsAsynchronously
//                     a rule by which replicas exchange with a centre without waiting for each other, on `Host`
//                     (`Asynchronous`, `Hogwild`, `Backup`); in several processes by `SharedCentre`
//
// Replicas are weighted by their numbers of samples; if the loss has weights, the mean is then divided by the weight
// per sample of all replicas, so that each sample counts by its own weight.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/kinds/centre_rule.hpp>
#include <cupola/parallel/run_policy.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The properties of a step on one device that a collective needs.
struct StepShape {
    std::int64_t step = 0;
    /// The number of samples of all replicas of the device.
    std::int64_t samples_here = 0;
    /// If not null, the weight that replaces the number of samples, times CollectiveSetup::loss_scale: a float in
    /// device memory, which is written before the last bucket is complete.
    const float* weight_here = nullptr;
    /// Whether the rows are multiplied by CollectiveSetup::loss_scale, as gradients are; then the weight is too. False
    /// for other rows, the differences of replicas to their centre, whose divisor is the number of samples alone.
    bool scaled = true;
};

/// The gradient rows of one device, and the weight of each.
struct WeightedGradients {
    std::span<const float* const> rows{};
    std::span<const float> weights{};
};

/// The sums over all replicas of all processes, and the divisor for the average; both in device memory.
template <class Element>
struct SumsOfGradient {
    std::span<const Element> values{};
    const float* divisor = nullptr;
};
using GradientSums = SumsOfGradient<float>;

/// The arguments of a collective's constructor.
struct CollectiveSetup {
    /// The devices of this process.
    int devices = 1;
    /// The first replica of each device, counted over all processes; and the ordinal of the device in the system.
    std::span<const int> first_replicas{}, ordinals{};
    /// The number of elements of the gradient.
    std::int64_t elements = 0;
    /// The constant factor by which the gradients are multiplied; the divisor contains it too, unless the rows are
    /// not StepShape::scaled. 1 if the loss scale is dynamic: the training then divides by it.
    float loss_scale = 1;
};

namespace impl {

template <class S>
concept SumsOfSomeElement = std::same_as<S, GradientSums> || std::same_as<S, SumsOfGradient<BFloat16>>;

}  // namespace impl

/// The blocks that devices exchange in each step, in device memory: `mine` is the block of this device, and `all` has
/// room for those of all ranks, in the order of the processes and of the devices in each process. Both are empty in a
/// training of one process.
struct RankBlocks {
    std::span<const std::byte> mine{};
    std::span<std::byte> all{};
};

/// A collective policy names a class for each device type that it supports, `typename A::template Collective<D>`. Every
/// member except the constructor is called on the thread of device `device`; each throws a DeviceError that names the
/// rank that does not respond.
///
///   Collective(const A&, const CollectiveSetup&)          connects to the other processes
///   static std::int64_t bucket_elements(const A&)         the minimum number of elements of a bucket; 0 for one bucket
///   static ProcessNumber process(const A&)                the replicas are divided evenly between the processes, in
///                                                         order
///   void join(device, queue, context, const RankBlocks&)  once, before the first step: allocates what the device needs
///   void begin(device, queue, context, const StepShape&)
///   void give(device, queue, context, k, bucket, WeightedGradients)
///                                                         queues the sum of bucket k, whose rows are complete at the
///                                                         queue's mark_bucket(k); buckets come in the same order on
///                                                         each rank, the order in which backward finishes them
///   GradientSums finish(device, queue, context)           later work of the queue sees the sums, which may also be a
///                                                         SumsOfGradient<BFloat16>, and the blocks of all ranks; each
///                                                         is complete with its rank's last bucket
///   void wait(device, queue, step, finished)              returns when the step has finished, or the mark is reached
///   void break_off(device, step, why) noexcept            ends every wait of every device
///   void end(device, queue)                               returns when no queued work runs any more, also after
///                                                         break_off(); throws nothing
///   bool healthy() const
///
/// A collective over several processes may have one more member, by which they compare their options, their data and
/// their results, and agree on the end of a run; see GathersOnHost.
template <class A, class D>
concept AveragesBuckets =
    QueueingDevice<D> && requires { sizeof(typename A::template Collective<D>); } &&
    requires(const A& policy, const CollectiveSetup& setup, typename A::template Collective<D>& all,
             typename D::Queue& queue, typename D::Kernels::Context& context, const StepShape& shape,
             const GradientBucket& bucket, const WeightedGradients& rows, const RankBlocks& blocks,
             const std::string& why) {
        requires std::constructible_from<typename A::template Collective<D>, const A&, const CollectiveSetup&>;
        { A::template Collective<D>::bucket_elements(policy) } -> std::convertible_to<std::int64_t>;
        { A::template Collective<D>::process(policy) } -> std::same_as<ProcessNumber>;
        all.join(0, queue, context, blocks);
        all.begin(0, queue, context, shape);
        all.give(0, queue, context, std::size_t{0}, bucket, rows);
        { all.finish(0, queue, context) } -> impl::SumsOfSomeElement;
        all.wait(0, queue, std::int64_t{0}, true);
        all.break_off(0, std::int64_t{0}, why);
        all.end(0, queue);
        { all.healthy() } -> std::convertible_to<bool>;
    };

/// The optional member of a collective over several processes:
///
///   void gather(device, queue, context, const ExchangeName&, mine, all)
///       called between steps, on the thread of each device: all ranks give `mine`, which has one size in all calls,
///       and `all` receives them in the order of RankBlocks, both in host memory; `all` is empty on a device that does
///       not need them. Throws as the other members do
///
/// A header with a collective includes <cupola/parallel/agreement/collective_agreement.hpp>; with one that gathers,
/// <cupola/processes/agreement/collective_processes.hpp>, which includes the former.
template <class C, class D>
concept GathersOnHost = requires(C& collective, typename D::Queue& queue, typename D::Kernels::Context& context,
                                 const ExchangeName& name, std::span<const std::byte> mine,
                                 std::span<std::byte> all) { collective.gather(0, queue, context, name, mine, all); };

/// Another optional member, without which replicas cannot agree on a centre by a collective:
///
///   const float* all_reduce_number(device, queue, context, step, const float* number)
///       in place of begin(), give() and finish() in a step that sums no gradients: returns where later work of the
///       queue finds the sum of `*number` of all ranks, with the blocks. The other three may follow in the same step,
///       for a sum of other rows
template <class C, class D>
concept AllReducesNumber =
    requires(C& collective, typename D::Queue& queue, typename D::Kernels::Context& context, const float* number) {
        { collective.all_reduce_number(0, queue, context, std::int64_t{0}, number) } -> std::same_as<const float*>;
    };

/// A policy that connects to the processes of a training: one that spans processes, or a choice of policies of which
/// some do.
template <class A>
concept JoinsProcesses = requires(const A& policy) {
    { policy.join() } -> std::same_as<std::shared_ptr<Processes>>;
};

/// A policy that divides the replicas of a training between processes:
///
///   std::shared_ptr<Processes> join() const   connects to the other processes, of which there may be none
///   Rows, rows                                an AveragesRows policy of that type; it is called with the rows of the
///                                             replicas of all processes, which exchange slices of the gradients
///   static constexpr bool sums                optional; true: the engine of the processes adds their weighted sums,
///                                             and `rows` is not called
///   using MessageElement = BFloat16           optional; the type of rows and means in messages, by default float. Rows
///                                             that `rows` has prepared, and means, are exact in it; a policy that sums
///                                             rounds the sums to it
///
/// Such a training includes <cupola/processes/agreement/process_rows_agreement.hpp>, or process_sums_agreement.hpp if
/// `sums` is true, as <cupola/mpi.hpp> does.
template <class A>
concept SpansProcesses = JoinsProcesses<A> && requires(const A& policy) {
    typename A::Rows;
    { policy.rows } -> std::convertible_to<typename A::Rows>;
};

/// Whether the processes add their sums instead of exchanging rows.
template <class A>
inline constexpr bool sums_of_processes = [] {
    if constexpr (requires { A::sums; }) return A::sums;
    return false;
}();

namespace impl {

template <class A>
struct MessageElementOf {
    using Type = float;
};
template <class A>
    requires requires { typename A::MessageElement; }
struct MessageElementOf<A> {
    using Type = typename A::MessageElement;
};

}  // namespace impl

/// The type of a policy's gradients in messages between processes.
template <class A>
using MessageElement = typename impl::MessageElementOf<A>::Type;

/// A policy by which replicas have parameters of their own and agree on a centre, the model of the training; see
/// parallel/kinds/centre_rule.hpp:
///
///   Averaging, averaging                      the policy that averages the rows of the replicas
///   CentreRule rule(int replicas) const       when, and by how much the mean moves the centre. Throws InvalidArgument
///   Outer, outer                              optional: the optimiser that moves the centre
///   static constexpr bool has_force = true    for a rule whose update pulls the replicas to the centre; without it,
///                                             a rule with in_update throws InvalidArgument
template <class A>
concept AgreesOnCentre = requires(const A& policy, int replicas) {
    typename A::Averaging;
    { policy.averaging } -> std::convertible_to<const typename A::Averaging&>;
    { policy.rule(replicas) } -> std::same_as<CentreRule>;
};

/// A policy that is one of several, which move values by the same one (parallel/kinds/one_of.hpp).
template <class A>
concept ChoosesPolicy = requires(const A& policy) {
    { policy.carrier() } -> std::same_as<const typename A::Carrier&>;
};

namespace impl {

template <class A>
struct CarrierOfPolicy {
    using Type = A;
};
template <class A>
    requires AgreesOnCentre<A>
struct CarrierOfPolicy<A> {
    using Type = typename A::Averaging;
};
template <class A>
    requires ChoosesPolicy<A>
struct CarrierOfPolicy<A> {
    using Type = typename A::Carrier;
};

}  // namespace impl

/// The policy that moves values between replicas, devices and processes: that inside a policy that agrees on a centre,
/// or in one of several; otherwise the policy itself.
template <class A>
using CarrierOf = typename impl::CarrierOfPolicy<A>::Type;
template <class A>
[[nodiscard]] constexpr const CarrierOf<A>& carrier_of(const A& policy) {
    if constexpr (ChoosesPolicy<A>)
        return policy.carrier();
    else if constexpr (AgreesOnCentre<A>)
        return policy.averaging;
    else
        return policy;
}

/// Whether a training with policy `A` on `D` may have several processes that agree on more than the gradient.
template <class A, class D>
inline constexpr bool agrees_between_processes = [] {
    using Carrier = CarrierOf<A>;
    if constexpr (AveragesBuckets<Carrier, D>)
        return GathersOnHost<typename Carrier::template Collective<D>, D>;
    else
        return JoinsProcesses<Carrier>;
}();

/// A policy by which replicas do not wait for each other, in steps of which several are in flight; see
/// parallel/kinds/asynchronous.hpp.
template <class A>
concept TrainsAsynchronously = requires { requires A::asynchronous; };

template <class A, class D>
[[nodiscard]] consteval CompileTimeMessage agreement_diagnostic();

/// The same for one that agrees on a centre.
template <class A, class D>
[[nodiscard]] consteval CompileTimeMessage centre_diagnostic() {
    using Averaging = typename A::Averaging;
    CompileTimeMessage message;
    if constexpr (!HasPolicyName<A> || !std::copyable<A>) {
        message = averaging_diagnostic<A, D>();
    } else if constexpr (AgreesOnCentre<Averaging>) {
        message << A::name << " cannot be around " << Averaging::name
                << ", which agrees on a centre itself: give it a policy that averages gradients";
    } else {
        message = agreement_diagnostic<Averaging, D>();
        if constexpr (AveragesBuckets<Averaging, D> && !AveragesRows<Averaging, typename D::Kernels>) {
            if constexpr (!AllReducesNumber<typename Averaging::template Collective<D>, D>)
                message << A::name << " cannot be around " << Averaging::name
                        << ", whose collective has no all_reduce_number() (parallel/agreement.hpp)";
        }
    }
    return message;
}

/// The error message for a type `A` that is not a policy on `D`; empty if it is one.
template <class A, class D>
[[nodiscard]] consteval CompileTimeMessage agreement_diagnostic() {
    CompileTimeMessage message;
    if constexpr (AgreesOnCentre<A>) {
        message = centre_diagnostic<A, D>();
    } else if constexpr (SpansProcesses<A> && !requires { A::template diagnostic<D>(); }) {
        if constexpr (!HasPolicyName<A> || !std::copyable<A>) {
            message = averaging_diagnostic<A, D>();
        } else if constexpr (!requires { requires D::host_memory && D::max_steps_in_flight == 1; }) {
            message << A::name << " averages in the host's memory, and " << D::name << " has its own: use Host";
        } else {
            message = averaging_diagnostic<typename A::Rows, typename D::Kernels>();
        }
    } else if constexpr (!AveragesBuckets<A, D> || requires { A::template diagnostic<D>(); }) {
        message = impl::rows_diagnostic<A, D>();
    } else if constexpr (!HasPolicyName<A> || !std::copyable<A>) {
        message = averaging_diagnostic<A, D>();
    }
    return message;
}

namespace impl {

// Defined with the policies that span processes, and with the collectives that gather on the host.

/// Throws InvalidArgument unless the training is the same on all processes.
template <class Net, class Loss, class D, class Options>
void require_same_training(ProcessGroup& processes, const Options& options);
[[nodiscard]] std::unique_ptr<RunPolicy> make_run_policy(ProcessGroup& processes);

/// `survivors`: whether other processes were lost, after which the replicas may be divided unevenly.
[[gnu::cold]] inline void require_divisible(int replicas, int devices, int processes, bool survivors = false) {
    require(replicas % processes == 0 || survivors, "a training of ", replicas,
            replicas == 1 ? " replica" : " replicas", " cannot be divided evenly between ", processes, " processes");
    require(devices <= replicas / processes, "a process with ", replicas / processes, " of the ", replicas,
            " replicas must have at most as many devices, not ", devices);
}

/// A policy of one of the kinds above, or one of several.
template <class A, class D>
    requires(AgreesOnCentre<A> || ChoosesPolicy<A> || JoinsProcesses<A> || TrainsAsynchronously<A> ||
             AveragesBuckets<A, D>)
struct AgreementKind<A, D> {
    using Carrier = CarrierOf<A>;
    static constexpr bool between_processes = agrees_between_processes<A, D>;
    static constexpr bool averages_gradients = !AgreesOnCentre<A> && !TrainsAsynchronously<A>;
    static constexpr bool asynchronous = TrainsAsynchronously<A>;

    [[nodiscard]] static consteval CompileTimeMessage diagnostic() { return agreement_diagnostic<A, D>(); }
    template <class Optimizer, class Kernels>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic_of() {
        if constexpr (has_elastic_force<A>) return elastic_diagnostic<Optimizer, Kernels>();
        return {};
    }
    [[nodiscard]] static consteval CompileTimeMessage missing() {
        CompileTimeMessage message;
        message << A::name << " needs #include <cupola/";
        if constexpr (AgreesOnCentre<A>)
            message << "parallel/kinds/centre";
        else if constexpr (SpansProcesses<A>)
            message << "processes/agreement/process_" << (sums_of_processes<A> ? "sums" : "rows");
        else
            message << "parallel/agreement/collective";
        return message << "_agreement.hpp>";
    }
    template <class Net, class Loss, class Options>
    [[nodiscard, gnu::cold]] static JoinedProcesses join([[maybe_unused]] const Options& options) {
        JoinedProcesses joined;
        if constexpr (JoinsProcesses<Carrier>) {
            const auto engine = carrier_of(options.averaging).join();
            // The chosen one of several policies may train in one process.
            if (!SpansProcesses<Carrier> && engine == nullptr) return joined;
            require(engine != nullptr, Carrier::name, " has no processes");
            require_same_training<Net, Loss, D>(*engine, options);
            joined = {.process = {engine->count(), engine->number()},
                      .survivors = engine->are_survivors(),
                      .engine = engine,
                      .share = [](auto& all, std::size_t bytes) { return all.share(bytes); },
                      .run_policy = make_run_policy(*engine)};
        }
        return joined;
    }
    /// `devices` may be groups of devices.
    template <class Options>
    [[gnu::cold]] static void place(JoinedProcesses& joined, const Options& options, int devices) {
        if constexpr (AveragesBuckets<Carrier, D>)
            joined.process = Carrier::template Collective<D>::process(carrier_of(options.averaging));
        if (joined.process.count > 1)
            require_divisible(options.replicas, devices, joined.process.count, joined.survivors);
    }
    template <class Net, class Loss, class Options, class Agreement>
    [[gnu::cold]] static void join_policy([[maybe_unused]] JoinedProcesses& joined,
                                          [[maybe_unused]] Agreement& agreement,
                                          [[maybe_unused]] const Options& options) {
        if constexpr (between_processes && !JoinsProcesses<Carrier>) {
            if (ProcessGroup* const group = agreement.processes()) {
                require_same_training<Net, Loss, D>(*group, options);
                joined.run_policy = make_run_policy(*group);
            }
        }
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
