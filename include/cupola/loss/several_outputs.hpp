// SPDX-License-Identifier: Apache-2.0
//
// Losses of a network with several outputs (Output<"name"> of net/named_values.hpp): one per output, and their sum is
// the loss of the data. Every one is reported by the name of its output.
//
//   using Loss = Losses<At<"kind", CrossEntropy<10>>, At<"box", Weighted<0.5, Huber<>>>>;
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

#include <cupola/core/fixed_string.hpp>
#include <cupola/loss/data_losses.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A loss times `factor`, in its value and its gradient; the factor is finite and more than 0.
template <Number factor, class L>
struct Weighted {
    using WeightedLoss = L;
    static constexpr double factor_of_loss = factor;

    L loss{};

    static constexpr bool lists_losses = true;
    /// See Losses::for_each_loss().
    template <class Visit>
    void for_each_loss(Visit&& visit) const;
};

/// The loss of the output `output_name`, which reads the column `column_name` of a batch.
template <FixedString output_name, class L, FixedString column_name = output_name>
struct At {
    using LossOfOutput = L;
    static constexpr std::string_view output = output_name.view(), column = column_name.view();

    L loss{};
};

/// One `At` per output of the network. Options of a loss: `Losses<...>{{{CrossEntropy<10>{.label_smoothing = 0.1F}},
/// {}}}`.
///
/// The gradient of the sum is averaged over replicas by samples; so a loss that counts samples by weights of its own
/// has to be the only one.
template <class... Ends>
struct Losses {
    std::tuple<Ends...> ends{};

    static constexpr bool lists_losses = true;
    /// Calls visit(output, factor, loss) for each: a std::string_view, a double and the loss without its factor.
    template <class Visit>
    void for_each_loss(Visit&& visit) const;
};

namespace impl {

// Checks members where a partial specialisation would do: nvcc does not match one on a FixedString or a Number.
template <class L>
    requires requires { typename L::WeightedLoss; }
struct Factored<L> {
    using Of = Factored<typename L::WeightedLoss>;
    using Type = typename Of::Type;
    static constexpr double factor = L::factor_of_loss * Of::factor;
    static constexpr bool is_valid = Of::is_valid && L::factor_of_loss > 0 && factor > 0 &&
                                     Number(factor).is_finite_float();
    static const Type& get(const L& loss) { return Of::get(loss.loss); }
};

/// The loss of an At.
template <class End>
struct AtOutput {
    using Loss = Factored<typename End::LossOfOutput>;
    static constexpr LossEntry entry{End::output, End::output, End::column, Loss::factor, Loss::is_valid};
    static const typename Loss::Type& get(const End& end) { return Loss::get(end.loss); }
};

template <class... Ends>
struct DataLosses<Losses<Ends...>> {
    static constexpr bool by_output = true;
    using Types = std::tuple<typename AtOutput<Ends>::Loss::Type...>;
    static constexpr std::array<LossEntry, sizeof...(Ends)> entries{AtOutput<Ends>::entry...};
    template <std::size_t k>
    static const auto& get(const Losses<Ends...>& data) {
        return AtOutput<std::tuple_element_t<k, std::tuple<Ends...>>>::get(std::get<k>(data.ends));
    }
};

}  // namespace impl

template <Number factor, class L>
template <class Visit>
void Weighted<factor, L>::for_each_loss(Visit&& visit) const {
    using Whole = impl::Factored<Weighted>;
    visit(std::string_view(), Whole::factor, Whole::get(*this));
}

template <class... Ends>
template <class Visit>
void Losses<Ends...>::for_each_loss(Visit&& visit) const {
    std::apply(
        [&](const Ends&... end) {
            (visit(impl::AtOutput<Ends>::entry.output, impl::AtOutput<Ends>::entry.factor,
                   impl::AtOutput<Ends>::get(end)),
             ...);
        },
        ends);
}

}}  // namespace cupola::CUPOLA_ABI
