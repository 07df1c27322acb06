// SPDX-License-Identifier: Apache-2.0
//
// The kind of agreement of a policy, and the members that a device needs to queue a training's steps.
//
// Covers: cupola/parallel/agreement.hpp, cupola/device/queue.hpp, cupola/parallel/host/queue.hpp
// Covers: cupola/parallel/agreement/agreement_kind.hpp
#include <cupola/parallel/agreement.hpp>

#include "../test.hpp"

#include <cupola/parallel/nccl_all_reduce.hpp>

#include "delayed_device.hpp"
#include "policies.hpp"

namespace {

struct Nothing {
    static constexpr std::string_view name = "Nothing";
};
/// Everything but the wait.
template <class D>
struct NoWait : SumAcross<D> {
    using SumAcross<D>::SumAcross;
    void wait() = delete;
};
struct CollectiveWithoutWait {
    static constexpr std::string_view name = "CollectiveWithoutWait";
    std::int64_t bucket_elements = 0;
    template <class D>
    using Collective = NoWait<D>;
};
struct WithoutQueue : Host {
    static constexpr std::string_view name = "WithoutQueue";
    struct NoQueue {};
    using Queue = NoQueue;
};

template <class A, class D>
constexpr int kinds =
    (AveragesRows<A, typename D::Kernels> ? 1 : 0) + (AveragesBuckets<A, D> ? 2 : 0) + (AgreesOnCentre<A> ? 4 : 0);

static_assert(kinds<ConcatMean, Host> == 1 && kinds<ConcatMean, Delayed> == 1 && kinds<MeanInDouble, Host> == 1);
static_assert(kinds<DeviceSum, Host> == 2 && kinds<DeviceSum, Delayed> == 2);
static_assert(kinds<LocalSgd, Host> == 4 && kinds<LocalSgd, Delayed> == 4);
static_assert(kinds<Nothing, Host> == 0 && kinds<CollectiveWithoutWait, Host> == 0);
static_assert(kinds<NcclAllReduce, Host> == 0);

static_assert(agreement_diagnostic<ConcatMean, Host>().empty() && agreement_diagnostic<DeviceSum, Delayed>().empty() &&
              agreement_diagnostic<LocalSgd, Host>().empty());
static_assert(!agreement_diagnostic<Nothing, Host>().empty() && !agreement_diagnostic<NcclAllReduce, Host>().empty());

static_assert(QueueingDevice<Host> && QueueingDevice<Delayed> && !QueueingDevice<WithoutQueue>);
static_assert(queue_diagnostic<Host>().empty() && !queue_diagnostic<WithoutQueue>().empty());

std::string_view shown(const CompileTimeMessage& message) { return {message.characters, message.size}; }

}  // namespace

TEST_CASE("the member that a device or a policy lacks is reported in one message") {
    constexpr CompileTimeMessage queue = queue_diagnostic<WithoutQueue>(),
                                 policy = agreement_diagnostic<Nothing, Host>();
    CHECK(shown(queue) ==
          "WithoutQueue cannot queue the steps of a training: it lacks a `Queue` with the members that "
          "<cupola/device/queue.hpp> lists");
    CHECK(shown(policy) ==
          "Nothing is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, "
          "std::span<float>) const`");
}
