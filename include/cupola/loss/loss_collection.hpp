// SPDX-License-Identifier: Apache-2.0
//
// The loss collection: the loss of the data and what is added to it. Every part is reported by name, and a replica's
// total is their sum.
//
//   using Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/weight_decay.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class L>
concept HasLossName = requires {
    { L::name } -> std::convertible_to<std::string_view>;
};

template <class L>
concept ChecksOutput = requires(const Shape& output) {
    { L::mistake(output) } -> std::same_as<Sentence>;
};

template <class L, class Device>
concept HasLossOperation = requires(const L& loss, typename Device::Context& context, const float* logits,
                                    const std::int32_t* labels, std::int64_t batch, float* gradient) {
    { loss.template operation<Device>().forward(context, logits, labels, batch, gradient) } -> std::same_as<LossResult>;
};

/// The loss of the data, the first of a collection.
template <class L, class Device>
concept DataLoss = HasLossName<L> && ChecksOutput<L> && HasLossOperation<L, Device>;

/// What `L` lacks as a loss of the data on `Device`, or nothing.
template <class L, class Device>
[[nodiscard]] consteval Sentence data_loss_mistake() {
    Sentence sentence;
    if constexpr (DataLoss<L, Device>) return sentence;
    sentence << short_type_name<L>() << " is no loss on " << Device::name << ": it lacks ";
    if constexpr (!HasLossName<L>) {
        sentence << "`static constexpr std::string_view name`";
    } else if constexpr (!ChecksOutput<L>) {
        sentence << "`static constexpr Sentence mistake(const Shape& output)`";
    } else {
        sentence << "`operation<Device>()` with `LossResult forward(Context&, const float* logits, const std::int32_t* "
                    "labels, std::int64_t batch, float* gradient)`";
    }
    return sentence;
}

/// What depends on the parameters alone.
template <class L>
concept Regularizer = requires(std::span<const Row> rows) {
    { L::mistake(rows) } -> std::same_as<Sentence>;
    { L::value } -> std::convertible_to<double>;
    L::names;
};

/// One regularised parameter: coefficient / 2 * sum of squares over `size` elements from `offset`.
struct RegularizedParameter {
    std::string name;
    std::int64_t offset = 0, size = 0;
    double coefficient = 0;
};

template <class Data, class... Regularizers>
struct LossCollection {
    using DataLossType = Data;
    Data data{};

    static constexpr Sentence mistake([[maybe_unused]] std::span<const Row> rows, const Shape& output) {
        Sentence sentence = Data::mistake(output);
        [[maybe_unused]] const auto add = [&](const Sentence& other) {
            if (sentence.empty()) sentence = other;
        };
        (add(Regularizers::mistake(rows)), ...);
        return sentence;
    }

    /// What is wrong with the collection on `Device` for a network of these rows and this output, or nothing.
    template <class Device>
    static constexpr Sentence mistake_on(std::span<const Row> rows, const Shape& output) {
        if constexpr (!DataLoss<Data, Device>) {
            return data_loss_mistake<Data, Device>();
        } else if constexpr (!(Regularizer<Regularizers> && ...)) {
            Sentence sentence;
            (require_regularizer<Regularizers>(sentence), ...);
            return sentence;
        } else {
            if (!has_space(Data::name)) return mistake(rows, output);
            Sentence sentence;
            sentence << "the name " << Data::name << " has a space, at which lists of losses are told apart";
            return sentence;
        }
    }

    /// What is regularised, in the order of the list; named "weight_decay/local3".
    [[gnu::cold]] static std::vector<RegularizedParameter> regularized([[maybe_unused]] std::span<const Row> rows) {
        std::vector<RegularizedParameter> result;
        [[maybe_unused]] const auto add = [&](std::string_view layer, double coefficient) {
            for (const Row& row : rows) {
                if (row.name != layer) continue;
                result.push_back(
                    {text("weight_decay/", layer), row.offsets[0], row.parameters.list[0].shape.size(), coefficient});
            }
        };
        [[maybe_unused]] const auto add_all = [&]<class R>(R) {
            for (const std::string_view layer : R::names) add(layer, R::value);
            if constexpr (requires { R::of_every_parameter; }) {
                for (const Row& row : rows) {
                    for (std::size_t p = 0; p < row.parameters.count; ++p) {
                        result.push_back(
                            {"weight_decay", row.offsets[p], row.parameters.list[p].shape.size(), R::value});
                    }
                }
            }
        };
        (add_all(Regularizers{}), ...);
        return result;
    }

private:
    template <class R>
    static constexpr void require_regularizer(Sentence& sentence) {
        if (Regularizer<R> || !sentence.empty()) return;
        sentence << short_type_name<R>()
                 << " is no regulariser: it lacks `names`, `value` or `static constexpr Sentence "
                    "mistake(std::span<const Row>)`";
    }
};

namespace impl {

/// A loss that is no collection is one of a single part.
template <class L>
struct AsCollection {
    using Type = LossCollection<L>;
};
template <class Data, class... Regularizers>
struct AsCollection<LossCollection<Data, Regularizers...>> {
    using Type = LossCollection<Data, Regularizers...>;
};

}  // namespace impl

template <class L>
using CollectionOf = typename impl::AsCollection<L>::Type;

}  // namespace cupola::inline CUPOLA_ABI
