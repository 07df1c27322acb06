// SPDX-License-Identifier: Apache-2.0
//
// OneOf<Policies...>: an averaging policy that is chosen when the program runs, from a flag for example, without a
// training per policy:
//
//   using Named = OneOf<ConcatMean, Periodic<ConcatMean>, ElasticAveraging<ConcatMean>>;
//   DataParallel<Net, Loss, Sgd, Named, Host> training(
//       {.replicas = 4, .averaging = local ? Named(Periodic<ConcatMean>{.every = 16}) : Named(ConcatMean{})});
//
// The policies have one carrier: each is that policy itself, which averages gradient rows or spans processes, or
// agrees on a centre around it. The training is that of the chosen policy: its bits, memory, errors, description and
// checkpoints.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/centre_agreement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class... Policies>
    requires(sizeof...(Policies) > 0)
class OneOf {
public:
    static constexpr std::string_view name = "OneOf";
    static constexpr bool has_force = (has_elastic_force<Policies> || ...);
    using Carrier = CarrierOf<std::tuple_element_t<0, std::tuple<Policies...>>>;

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
        requires(std::same_as<CarrierOf<Policies>, Carrier> && ...)
    {
        return visit([](const auto& policy) -> const Carrier& { return carrier_of(policy); });
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
        if constexpr (!AgreesOnCentre<P> && !AveragesRows<P, typename D::Kernels> && !SpansProcesses<P>) {
            message << "OneOf cannot choose " << P::name
                    << ", which is no function of the gradient rows, and agrees on no centre";
        } else if constexpr (!std::same_as<CarrierOf<P>, Carrier>) {
            message << "OneOf cannot choose between policies by " << Carrier::name << " and by " << CarrierOf<P>::name
                    << ": give it those of one";
        }
    }

    std::variant<Policies...> chosen_;
};

namespace impl {

template <class... Policies, class D, class T>
struct AgreementOf<OneOf<Policies...>, D, T> {
    [[nodiscard]] static AgreementTraits traits(const OneOf<Policies...>& policy, std::int64_t elements) {
        return policy.visit([&]<class P>(const P& chosen) { return AgreementOf<P, D, T>::traits(chosen, elements); });
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const OneOf<Policies...>& policy,
                                                                              Replicas<D, T>& replicas) {
        return policy.visit([&]<class P>(const P& chosen) -> std::unique_ptr<StepAgreement<D, T>> {
            return AgreementOf<P, D, T>::make(chosen, replicas);
        });
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
