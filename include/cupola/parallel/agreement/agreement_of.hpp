// SPDX-License-Identifier: Apache-2.0
//
// Agreement: what a step needs of the way in which the replicas agree; and which class does so for a policy. No other
// code depends on the kind of the policy. Agreement between processes has headers of its own, in processes/agreement/,
// so that only programs with such a policy compile it.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/agreement_traits.hpp>
#include <cupola/parallel/agreement/collective_agreement.hpp>
#include <cupola/parallel/agreement/parameter_agreement.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a DeviceStep or a `device` are called on that device's thread.
///   AgreementTraits traits(policy, elements)       what the memory of a training depends on, before it is allocated
///   void begin(step, samples, running)             before a step is queued, on one thread; `running` are the running
///                                                  statistics that it is computed with
///   bool agree(step)                               queues the averaging behind the passes; called also if the device
///   has an
///                                                  error, because others wait for it. False if every device leaves the
///                                                  step
///   void reduce(device)                            the beginning of the work that updates the parameters
///   UpdateGradient gradient(device, replica)       what a replica's parameters are updated with
///   void after(step)                               behind the update; called also if the device has an error
///   void wait(device, step, finished)              returns when the step has finished, or the mark of the queue is
///   reached
///   void break_off(device, step, why)              ends the waits of all devices
///   void end(device)                               returns when no queued work runs any more, whether it succeeded or
///   not
///   bool healthy() const                           false once no step can succeed any more
///   Peers& peers()                                 the other processes
template <class C, class A, class D, class T>
concept Agreement = requires(C& c, const C& constant, const A& policy, DeviceStep<D, T>& step,
                             const SampleCounts& samples, std::span<const float> running, const std::string& why) {
    requires std::constructible_from<C, const A&, Replicas<D, T>&>;
    { C::traits(policy, std::int64_t{}) } -> std::same_as<AgreementTraits>;
    c.begin(std::int64_t{}, samples, running);
    { c.agree(step) } -> std::same_as<bool>;
    c.reduce(0);
    { c.gradient(0, 0) } -> std::same_as<UpdateGradient>;
    c.after(step);
    c.wait(0, std::int64_t{}, true);
    c.break_off(0, std::int64_t{}, why);
    c.end(0);
    { constant.healthy() } -> std::same_as<bool>;
    { c.peers() } -> std::same_as<Peers&>;
};

template <class A, class D, class T>
struct AgreementOf;
template <class A, class D, class T>
    requires AveragesRows<A, typename D::Kernels>
struct AgreementOf<A, D, T> {
    using Type = RowsAgreement<A, D, T>;
};
template <class A, class D, class T>
    requires AveragesBuckets<A, D>
struct AgreementOf<A, D, T> {
    using Type = CollectiveAgreement<A, D, T>;
};
template <class A, class D, class T>
    requires MovesParameters<A, D>
struct AgreementOf<A, D, T> {
    using Type = ParameterAgreement<A, D, T>;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
