// SPDX-License-Identifier: Apache-2.0
//
// OneOf<Policies...>: an averaging policy that is chosen when the program runs, from a flag for example, without a
// training per policy:
//
//   using Choice = OneOf<ConcatMean, Periodic<ConcatMean>, ElasticAveraging<ConcatMean>>;
//   DataParallel<Net, Loss, Sgd, Choice, Host> training(
//       {.replicas = 4, .averaging = local ? Choice(Periodic<ConcatMean>{.every = 16}) : Choice(ConcatMean{})});
//
// The policies have one carrier: each is that policy itself, which averages gradient rows or spans processes, or
// agrees on a centre around it. There may also be asynchronous ones: in one process as they are, in several in a
// SharedCentre of that policy. Where one of the policies spans processes, there may be several carriers, of which the
// chosen one decides whether the training has several processes. The training is that of the chosen policy: its bits,
// memory, errors, description and checkpoints.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/centre_agreement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/engine.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class... Policies>
    requires(sizeof...(Policies) > 0)
class OneOf {
public:
    static constexpr std::string_view name = "OneOf";
    static constexpr bool has_force = (has_elastic_force<Policies> || ...);
    using Carrier = CarrierOf<std::tuple_element_t<0, std::tuple<Policies...>>>;

    /// Whether the policies have one carrier; and, where they have several, whether some of these span processes.
    static constexpr bool has_one_carrier = (std::same_as<CarrierOf<Policies>, Carrier> && ...);
    static constexpr bool mixes_processes = !has_one_carrier && (SpansProcesses<CarrierOf<Policies>> || ...);

    /// The first policy, with its defaults.
    OneOf() = default;
    template <class Policy>
        requires(std::same_as<Policy, Policies> || ...)
    OneOf(Policy policy) : chosen_(std::move(policy)) {}  // NOLINT: `.averaging = ConcatMean{}` is meant to work

    /// Calls visitor(policy) with the chosen one.
    template <class Visitor>
    decltype(auto) visit(Visitor&& visitor) const {
        return std::visit(std::forward<Visitor>(visitor), chosen_);
    }

    [[nodiscard]] const Carrier& carrier() const
        requires(has_one_carrier)
    {
        return visit([](const auto& policy) -> const Carrier& { return carrier_of(policy); });
    }
    /// Connects to the processes of the chosen policy; null if it trains in one.
    [[nodiscard]] std::shared_ptr<Processes> join() const
        requires(mixes_processes)
    {
        return visit([]<class P>(const P& policy) -> std::shared_ptr<Processes> {
            if constexpr (SpansProcesses<CarrierOf<P>>) {
                std::shared_ptr<Processes> engine = carrier_of(policy).join();
                // Null says that the policy trains in one process.
                require(engine != nullptr, CarrierOf<P>::name, " has no processes");
                return engine;
            } else {
                return nullptr;
            }
        });
    }
    [[nodiscard]] std::string_view chosen_name() const {
        return visit([]<class P>(const P&) { return std::string_view(P::name); });
    }
    /// That of the chosen policy.
    [[nodiscard]] std::string description() const {
        return visit([]<class P>(const P& policy) {
            if constexpr (requires { policy.description(); }) {
                return std::string(policy.description());
            } else {
                return std::string(P::name);
            }
        });
    }
    /// A line for the header of a run, or empty; that of the chosen policy.
    [[nodiscard]] std::string warning(int replicas) const {
        return visit([&](const auto& policy) {
            if constexpr (requires { policy.warning(replicas); }) {
                return std::string(policy.warning(replicas));
            } else {
                return std::string();
            }
        });
    }

    template <class D>
    static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message;
        (add_diagnostic<Policies, D>(message), ...);
        return message;
    }

private:
    template <class P, class D>
    static consteval void add_diagnostic(CompileTimeMessage& message) {
        if (!message.empty()) return;
        message = agreement_diagnostic<P, D>();
        if (!message.empty()) return;
        if constexpr (TrainsAsynchronously<P>) {
            return;
        } else if constexpr (!AgreesOnCentre<P> && !AveragesRows<P, typename D::Kernels> && !SpansProcesses<P>) {
            message << "OneOf cannot choose " << P::name
                    << ", which is no function of the gradient rows, and agrees on no centre";
        } else if constexpr (!std::same_as<CarrierOf<P>, Carrier> && !mixes_processes) {
            message << "OneOf cannot choose between policies by " << Carrier::name << " and by " << CarrierOf<P>::name
                    << ": give it those of one";
        }
    }

    std::variant<Policies...> chosen_;
};

namespace impl {

/// A StepEngine, or the engine `Other` of the policies that name one: that of the chosen policy, with its members.
template <class D, class T, class Other>
class EitherEngine {
    using Steps = StepEngine<D, T>;

public:
    using BatchSource = typename Steps::BatchSource;
    using Probe = FunctionRef<void(EitherEngine&)>;

    [[gnu::cold]] EitherEngine(const StepFunctions<D>& functions, StepAgreement<D, T>& agreement,
                               Replicas<D, T>& replicas, std::span<const RegularizedParameter> regularized,
                               std::string_view policy) {
        if (replicas.settings().landed_steps > 0) {
            other_.emplace(functions, agreement, replicas, regularized, policy);
        } else {
            steps_.emplace(functions, agreement, replicas, regularized, policy);
        }
    }

    template <class Joint>
    [[gnu::cold]] void run_jointly() {
        if (steps_) steps_->template run_jointly<Joint>();
    }
    [[nodiscard]] std::int64_t step() const { return steps_ ? steps_->step() : other_->step(); }
    void queue(BatchSource batches, Probe probe) {
        probe_ = probe;
        // The engine calls it during the step: the reference is to a member.
        if (steps_) return steps_->queue(batches, probe ? typename Steps::Probe(show_) : typename Steps::Probe());
        other_->queue(batches, probe ? typename Other::Probe(show_) : typename Other::Probe());
    }
    template <class Inspector>
    [[gnu::cold]] void show(Inspector& inspector) {
        steps_ ? steps_->show(inspector) : other_->show(inspector);
    }
    const StepReport* poll(std::int64_t max_in_flight) {
        return steps_ ? steps_->poll(max_in_flight) : other_->poll(max_in_flight);
    }
    const StepReport& last_report() { return steps_ ? steps_->last_report() : other_->last_report(); }
    void synchronize() { steps_ ? steps_->synchronize() : other_->synchronize(); }
    [[nodiscard]] SharedStatistics<D, T>& statistics() { return steps_ ? steps_->statistics() : other_->statistics(); }
    [[nodiscard]] double factor_of_row(int replica) {
        return steps_ ? steps_->factor_of_row(replica) : other_->factor_of_row(replica);
    }
    [[gnu::cold]] void drain() { steps_ ? steps_->drain() : other_->drain(); }
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale) {
        steps_ ? steps_->restart(step, running, loss_scale) : other_->restart(step, running, loss_scale);
    }
    [[gnu::cold]] void restore(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale,
                               FunctionRef<void()> check, FunctionRef<void()> copy) {
        steps_ ? steps_->restore(step, running, loss_scale, check, copy)
               : other_->restore(step, running, loss_scale, check, copy);
    }
    [[nodiscard]] const LossScaleState& loss_scale() const {
        return steps_ ? steps_->loss_scale() : other_->loss_scale();
    }
    [[nodiscard]] bool healthy() const { return steps_ ? steps_->healthy() : other_->healthy(); }
    [[nodiscard, gnu::cold]] std::string not_repeated() const {
        return steps_ ? steps_->not_repeated() : other_->not_repeated();
    }
    [[nodiscard, gnu::cold]] std::string launches_description() const {
        return steps_ ? steps_->launches_description() : other_->launches_description();
    }
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        if (steps_) return steps_->for_each_recording(device, visit);
        other_->for_each_recording(device, visit);
    }
    void trace(StepTrace trace) { steps_ ? steps_->trace(trace) : other_->trace(trace); }

private:
    struct Show {
        EitherEngine* engine;
        void operator()(Steps&) const { engine->probe_(*engine); }
        void operator()(Other&) const { engine->probe_(*engine); }
    };

    std::optional<Steps> steps_;
    std::optional<Other> other_;
    Probe probe_;
    Show show_{this};
};

/// The member Engine of OneOf's agreement: none unless a policy names one.
template <class D, class T, class... Policies>
struct EngineOfPolicies {};
template <class D, class T, class Policy, class... Others>
struct EngineOfPolicies<D, T, Policy, Others...> : EngineOfPolicies<D, T, Others...> {};
template <class D, class T, class Policy, class... Others>
    requires requires { typename AgreementOf<Policy, D, T>::Engine; }
struct EngineOfPolicies<D, T, Policy, Others...> {
    using Engine = EitherEngine<D, T, typename AgreementOf<Policy, D, T>::Engine>;
};

template <class... Policies, class D, class T>
struct AgreementOf<OneOf<Policies...>, D, T> : EngineOfPolicies<D, T, Policies...> {
    [[nodiscard]] static AgreementTraits traits(const OneOf<Policies...>& policy, std::int64_t elements) {
        return policy.visit([&]<class P>(const P& chosen) { return AgreementOf<P, D, T>::traits(chosen, elements); });
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const OneOf<Policies...>& policy,
                                                                              Replicas<D, T>& replicas) {
        return policy.visit([&]<class P>(const P& chosen) -> std::unique_ptr<StepAgreement<D, T>> {
            require(!TrainsAsynchronously<P> || !replicas.settings().synchronized,
                    "the statistics are synchronized inside a pass, and with ", P::name,
                    " no replica waits for another");
            return AgreementOf<P, D, T>::make(chosen, replicas);
        });
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
