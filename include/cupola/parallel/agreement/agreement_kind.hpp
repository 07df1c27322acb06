// SPDX-License-Identifier: Apache-2.0
//
// AgreementKind: what a training asks of its policy's kind (parallel/agreement.hpp) before it makes the agreement. Here
// for a function of the gradient rows of one process; parallel/agreement.hpp, which every policy of another kind
// includes, has it for the other kinds.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/run_policy.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether a policy's update has the force of elastic averaging.
template <class A>
inline constexpr bool has_elastic_force = [] {
    if constexpr (requires { A::has_force; }) return A::has_force;
    return false;
}();

/// The name of a policy, also of one that is chosen when the program runs.
template <HasPolicyName A>
[[nodiscard]] std::string_view policy_name(const A& policy) {
    if constexpr (requires { policy.chosen_name(); }) {
        return policy.chosen_name();
    } else {
        return A::name;
    }
}

namespace impl {

/// The processes of a training, of which there may be one.
struct JoinedProcesses {
    ProcessNumber process{};
    /// Whether other processes were lost, after which the replicas may be divided unevenly.
    bool survivors = false;
    /// The engine of a policy that has one; and its Processes::share().
    std::shared_ptr<Processes> engine{};
    std::vector<std::byte*> (*share)(Processes&, std::size_t bytes) = nullptr;
    /// Null in one process.
    std::unique_ptr<RunPolicy> run_policy{};
};

/// The error message for a type `A` that is not a policy on `D`, unless it is of another kind or says so itself.
template <class A, class D>
[[nodiscard]] consteval CompileTimeMessage rows_diagnostic() {
    if constexpr (requires { A::template diagnostic<D>(); })
        return A::template diagnostic<D>();
    else if constexpr (!HasPolicyName<A> || !std::copyable<A>)
        return averaging_diagnostic<A, D>();
    else if constexpr (!QueueingDevice<D>)
        return queue_diagnostic<D>();
    else
        return averaging_diagnostic<A, typename D::Kernels>();
}

template <class A, class D>
struct AgreementKind {
    /// Whether there may be several processes that agree on more than the gradient.
    static constexpr bool between_processes = false;
    /// Whether all parameters are updated with one gradient; and whether no replica waits for another.
    static constexpr bool averages_gradients = true, asynchronous = false;

    [[nodiscard]] static consteval CompileTimeMessage diagnostic() { return rows_diagnostic<A, D>(); }
    /// The same for an optimiser that is one on `Kernels`, and that the policy cannot use.
    template <class Optimizer, class Kernels>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic_of() {
        return {};
    }
    /// The error message for a policy whose agreement is not included.
    [[nodiscard]] static consteval CompileTimeMessage missing() {
        CompileTimeMessage message;
        message << A::name << " needs #include <cupola/parallel/agreement/rows_agreement.hpp>";
        return message;
    }
    /// Connects to the other processes. Throws InvalidArgument unless the training is the same on all of them.
    template <class Net, class Loss, class Options>
    [[nodiscard]] static JoinedProcesses join(const Options&) {
        return {};
    }
    /// Completes the number of this process. Throws InvalidArgument if the replicas cannot be divided.
    template <class Options>
    static void place(JoinedProcesses&, const Options&, int) {}
    /// The same as join() for processes that find each other when the agreement is made.
    template <class Net, class Loss, class Options, class Agreement>
    static void join_policy(JoinedProcesses&, Agreement&, const Options&) {}
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
