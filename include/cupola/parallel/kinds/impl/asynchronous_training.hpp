// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousAgreement: an asynchronous policy without its type, for AsynchronousEngine, which queues its steps in the
// place of a StepEngine. Included by the header of each asynchronous policy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/launched_processes.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_engine.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The error message for an asynchronous policy on a device that is not Host; empty on Host.
template <class A, class D>
[[nodiscard]] consteval CompileTimeMessage asynchronous_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!requires { requires D::host_memory && D::max_steps_in_flight == 1; })
        message << A::name << " exchanges in the host's memory, and " << D::name
                << " has its own: use Host, or Periodic or ElasticAveraging";
    return message;
}

/// Throws InvalidArgument if a launcher has started several processes, each of which would train alone.
/// `shares`: whether several processes can share its centre.
[[gnu::cold]] inline void require_one_process(std::string_view policy, bool shares) {
    const LaunchedProcesses launched =
        launched_processes([](const char* name) -> const char* { return std::getenv(name); });
    require(launched.count == 1, policy, " trains in one process, and the launcher has started ", launched.count, " (",
            launched.variable, "): use Periodic or ElasticAveraging", shares ? ", or SharedCentre on one machine" : "");
}

template <class A, class D, class T>
    requires TrainsAsynchronously<A>
struct AgreementOf<A, D, T> {
    using Engine = AsynchronousEngine<D, T>;

    [[nodiscard]] static AgreementTraits traits(const A& policy, std::int64_t) {
        const AsynchronousRun run = policy.run();
        // The number of replicas is not known here; make() checks the policy against it.
        constexpr int any = std::numeric_limits<int>::max();
        require(run.ahead >= 1 && run.ahead <= 4096, A::name, " must have 1 to 4096 steps in flight, not ", run.ahead);
        const std::unique_ptr<CentreExchange> exchange = policy.exchange(any);
        return {.separate_average = true,
                .centre = true,
                .replica_arenas = exchange->keeps_values() ? 1 : 0,
                .replica_states = exchange->has_state() ? 1 : 0,
                .updates_centre = exchange->counted() > 0,
                .steps_in_flight = run.ahead};
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const A& policy,
                                                                              Replicas<D, T>& replicas) {
        require_one_process(A::name, policy.exchange(replicas.placement().replicas())->counted() == 0);
        return make(policy, replicas, nullptr);
    }
    /// The same in several processes, or in one if `others` is null.
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(
        const A& policy, Replicas<D, T>& replicas, std::unique_ptr<AsynchronousProcesses> others) {
        replicas.settings().require_no_skipping(A::name);
        std::unique_ptr<CentreExchange> exchange = policy.exchange(replicas.placement().replicas());
        require(
            has_elastic_force<A> || !exchange->takes_position(), A::name,
            " has a rule whose exchange takes the position before the update, and the rule does not say so: give it "
            "`static constexpr bool has_force = true`");
        require(others == nullptr || exchange->counted() == 0, A::name,
                " trains in one process, and this training has ", replicas.placement().process_count(),
                ": use Periodic or ElasticAveraging");
        return std::make_unique<AsynchronousAgreement<D, T>>(replicas, policy.run(), std::move(exchange),
                                                             std::move(others));
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
