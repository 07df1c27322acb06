// SPDX-License-Identifier: Apache-2.0
//
// The loss collection: the loss of the data and the regularisers. Every part is reported by name, and a replica's total
// is their sum.
//
//   using Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/data_losses.hpp>
#include <cupola/loss/weight_decay.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class L>
concept HasLossName = requires {
    { L::name } -> std::convertible_to<std::string_view>;
};

template <class L>
concept ChecksOutput = requires(const Shape& output) {
    { L::diagnostic(output) } -> std::same_as<CompileTimeMessage>;
};

/// `Target` is the element type of the target, float or std::int32_t; target(output) has its extents per sample.
template <class L>
concept HasTarget = (std::same_as<typename L::Target, float> ||
                     std::same_as<typename L::Target, std::int32_t>)&&requires(const Shape& output) {
    { L::target(output) } -> std::same_as<Shape>;
};

template <class L, class Device>
concept MakesLossOperation = requires(const L& loss, const Shape& output) {
    loss.template operation<Device>(output);
} || requires(const L& loss) { loss.template operation<Device>(); };
template <class L, class Device>
concept HasLossOperation =
    MakesLossOperation<L, Device> && requires(const L& loss, typename Device::Context& context, const float* outputs,
                                              const typename L::Target* targets, std::int64_t batch, float* gradient) {
        {
            impl::loss_operation<Device>(loss, Shape{}).forward(context, outputs, targets, batch, gradient)
        } -> std::same_as<LossResult>;
    };

/// Whether samples count by weights that the operation reports, and not each by 1:
/// `static constexpr bool weighted = true`.
template <class L>
inline constexpr bool loss_has_weights = false;
template <class L>
    requires requires { requires L::weighted; }
inline constexpr bool loss_has_weights<L> = true;

/// The loss of the data, the first of a collection.
template <class L, class Device>
concept DataLoss = HasLossName<L> && ChecksOutput<L> && HasTarget<L> && HasLossOperation<L, Device>;

/// The members that `L` lacks as a loss of the data on `Device`; empty if it is complete.
template <class L, class Device>
[[nodiscard]] consteval CompileTimeMessage data_loss_diagnostic() {
    CompileTimeMessage message;
    if constexpr (DataLoss<L, Device>) return message;
    if constexpr (requires { L::formula_diagnostic(); }) {
        if (constexpr CompileTimeMessage of_formula = L::formula_diagnostic(); !of_formula.empty()) return of_formula;
    }
    message << short_type_name<L>() << " is not a loss on " << Device::name << ": it lacks ";
    if constexpr (!HasLossName<L>) {
        message << "`static constexpr std::string_view name`";
    } else if constexpr (!ChecksOutput<L>) {
        message << "`static constexpr CompileTimeMessage diagnostic(const Shape& output)`";
    } else if constexpr (!HasTarget<L>) {
        message << "`using Target = float` or `std::int32_t` and `static constexpr Shape target(const Shape& output)`";
    } else {
        message << "`operation<Device>(const Shape& output)` with `LossResult forward(Context&, const float* outputs, "
                   "const Target* targets, std::int64_t batch, float* gradient)`";
    }
    return message;
}

/// A part of the loss that depends only on the parameters.
template <class L>
concept Regularizer = requires(std::span<const LayerInfo> layers) {
    { L::diagnostic(layers) } -> std::same_as<CompileTimeMessage>;
    { L::value } -> std::convertible_to<double>;
    L::names;
};

/// One regularised parameter: coefficient / 2 * sum of squares over `size` elements from `offset`.
struct RegularizedParameter {
    std::string name;
    std::int64_t offset = 0, size = 0;
    double coefficient = 0;
};

namespace impl {

/// Regularised parameters while they are listed: they are counted first, and stored once there is room for all.
struct RegularizedList {
    FixedArray<RegularizedParameter> parameters{};
    std::size_t count = 0;

    /// Adds parameter `p` of a layer, unless it is frozen.
    [[gnu::cold]] void add(std::string name, const LayerInfo& layer, std::size_t p, double coefficient);
    /// Whether all are stored. If not, there is room for them now, and they are to be added again.
    [[nodiscard, gnu::cold]] bool complete();
};

inline void RegularizedList::add(std::string name, const LayerInfo& layer, std::size_t p, double coefficient) {
    if (layer.frozen[p]) return;
    if (count < parameters.size()) {
        RegularizedParameter& added = parameters[count];
        added.name = std::move(name);
        added.offset = layer.offsets[p];
        added.size = layer.parameters.list[p].shape.size();
        added.coefficient = coefficient;
    }
    ++count;
}
inline bool RegularizedList::complete() {
    if (count == parameters.size()) return true;
    parameters = FixedArray<RegularizedParameter>(count);
    count = 0;
    return false;
}

}  // namespace impl

template <class Data, class... Regularizers>
struct LossCollection {
    using DataLossType = Data;
    Data data{};

    /// The number of losses of the data, and their entries.
    static constexpr std::size_t loss_count = impl::DataLosses<Data>::entries.size();
    static constexpr auto& losses = impl::DataLosses<Data>::entries;
    /// Whether the loss has weights, which its reports contain.
    static constexpr bool weighted = [] {
        return []<std::size_t... k>(std::index_sequence<k...>) {
            return (loss_has_weights<impl::DataLossAt<Data, k>> || ...);
        }(std::make_index_sequence<loss_count>{});
    }();

    /// The error in the collection on `Device` for a network of these layers; empty if there is none.
    template <class Device>
    static constexpr CompileTimeMessage diagnostic_on(std::span<const LayerInfo> layers) {
        CompileTimeMessage message;
        const auto add = [&](const CompileTimeMessage& other) {
            if (message.empty()) message = other;
        };
        add(losses_diagnostic<Device>(layers, std::make_index_sequence<loss_count>{}));
        if constexpr (!(Regularizer<Regularizers> && ...)) {
            if (message.empty()) (require_regularizer<Regularizers>(message), ...);
        } else {
            (add(Regularizers::diagnostic(layers)), ...);
        }
        return message;
    }

    /// The columns that a network of these layers and the losses of the data read.
    [[nodiscard, gnu::cold]] static FixedArray<RequiredColumn> required_columns(std::span<const LayerInfo> layers) {
        const FixedArray<RequiredColumn> inputs = required_inputs(layers);
        FixedArray<RequiredColumn> result(inputs.size() + loss_count);
        std::size_t count = 0;
        for (const RequiredColumn& each : inputs) result[count++] = each;
        const impl::NetworkOutputs outputs(layers);
        [&]<std::size_t... k>(std::index_sequence<k...>) {
            (add_required<k>(result, count, inputs.size(), outputs), ...);
        }(std::make_index_sequence<loss_count>{});
        result.keep_first(count);
        return result;
    }

    /// The text by which two trainings are compared: the losses of the data, with the options that their member
    /// `description()` states, and the regularisers: "cross_entropy: CrossEntropy<10>, label_smoothing 0;
    /// WeightDecay<0.004>: 0.004 of local3". The same for every compiler.
    [[nodiscard, gnu::cold]] std::string description() const {
        std::string result;
        const auto add = [&]<class L>(const LossEntry& entry, const L& loss) {
            result += text(result.empty() ? "" : "; ", entry.name, ": ", short_type_name<L>());
            if constexpr (requires { std::string(loss.description()); }) result += text(", ", loss.description());
            if (entry.column != target_column) result += text(", of the column ", entry.column);
            if (entry.factor != 1) result += text(", times ", exact_text(entry.factor));
        };
        [&]<std::size_t... k>(std::index_sequence<k...>) {
            (add(losses[k], impl::DataLosses<Data>::template get<k>(data)), ...);
        }(std::make_index_sequence<loss_count>{});
        [[maybe_unused]] const auto add_regularizer = [&]<class R>(R) {
            result += text("; ", short_type_name<R>(), ": ", exact_text(R::value), " of ");
            if constexpr (requires { R::of_every_parameter; }) {
                result += "every parameter";
            } else {
                for (std::size_t i = 0; i < R::names.size(); ++i) result += text(i == 0 ? "" : ", ", R::names[i]);
            }
        };
        (add_regularizer(Regularizers{}), ...);
        return result;
    }

    /// The number of classes that a loss of the data distinguishes in this column; 0 if none does, or if a label that
    /// is not one of the classes is ignored.
    [[nodiscard]] std::int64_t classes_of(std::string_view column) const {
        std::int64_t count = 0;
        const auto look = [&]<class L>(const LossEntry& entry, const L& loss) {
            if constexpr (requires { L::class_count; }) {
                if (entry.column != column) return;
                if constexpr (requires { loss.ignored_label.has_value(); }) {
                    if (loss.ignored_label.has_value() && *loss.ignored_label >= L::class_count) return;
                }
                count = count == 0 || L::class_count < count ? L::class_count : count;
            }
        };
        [&]<std::size_t... k>(std::index_sequence<k...>) {
            (look(losses[k], impl::DataLosses<Data>::template get<k>(data)), ...);
        }(std::make_index_sequence<loss_count>{});
        return count;
    }

    /// The regularised parameters, in the order of the list; named "weight_decay/local3".
    [[gnu::cold]] static FixedArray<RegularizedParameter> regularized(
        [[maybe_unused]] std::span<const LayerInfo> layers) {
        impl::RegularizedList list;
        [[maybe_unused]] const auto add = [&](std::string_view name, double coefficient) {
            for (const LayerInfo& layer : layers) {
                if (layer.name != name) continue;
                list.add(text("weight_decay/", name), layer, 0, coefficient);
            }
        };
        [[maybe_unused]] const auto add_all = [&]<class R>(R) {
            for (const std::string_view name : R::names) add(name, R::value);
            if constexpr (requires { R::of_every_parameter; }) {
                for (const LayerInfo& layer : layers) {
                    for (std::size_t p = 0; p < layer.parameters.count; ++p)
                        list.add("weight_decay", layer, p, R::value);
                }
            }
        };
        do {
            (add_all(Regularizers{}), ...);
        } while (!list.complete());
        return std::move(list.parameters);
    }

private:
    template <class Device, std::size_t... k>
    static constexpr CompileTimeMessage losses_diagnostic(std::span<const LayerInfo> layers,
                                                          std::index_sequence<k...>) {
        using Of = impl::DataLosses<Data>;
        CompileTimeMessage message;
        const auto add = [&](const CompileTimeMessage& other) {
            if (message.empty()) message = other;
        };
        if constexpr (!(DataLoss<impl::DataLossAt<Data, k>, Device> && ...)) {
            (add(data_loss_diagnostic<impl::DataLossAt<Data, k>, Device>()), ...);
        } else {
            const impl::NetworkOutputs outputs(layers);
            add(impl::outputs_diagnostic(Of::entries, Of::by_output, outputs));
            if (!message.empty()) return message;
            (add(impl::DataLossAt<Data, k>::diagnostic(outputs[outputs.find(Of::entries[k].output)].shape)), ...);
            if (message.empty()) {
                const std::array<RequiredColumn, loss_count> read{column_of<k>(outputs)...};
                message = impl::columns_diagnostic(layers, read);
            }
            for (const LossEntry& each : Of::entries) {
                if (!message.empty() || !has_space(each.name)) continue;
                message << "the name " << each.name
                        << " contains a space, but lists of losses separate their names by spaces";
            }
            if (loss_count > 1 && weighted && message.empty()) {
                message << "Losses has a loss that counts samples by weights (";
                ((message << (loss_has_weights<impl::DataLossAt<Data, k>> ? Of::entries[k].name : std::string_view())),
                 ...);
                message << "); several losses have one mean over the samples only if each counts every sample alike";
            }
        }
        return message;
    }

    /// The column that a loss reads.
    template <std::size_t k>
    static constexpr RequiredColumn column_of(const impl::NetworkOutputs& outputs) {
        using Type = impl::DataLossAt<Data, k>;
        const LossEntry& entry = losses[k];
        return {{entry.column, element_type_of<typename Type::Target>,
                 Type::target(outputs[outputs.find(entry.output)].shape)},
                Type::name};
    }
    template <std::size_t k>
    static void add_required(FixedArray<RequiredColumn>& to, std::size_t& count, std::size_t inputs,
                             const impl::NetworkOutputs& outputs) {
        const RequiredColumn required = column_of<k>(outputs);
        for (std::size_t i = 0; i < count; ++i) {
            if (to[i].column != required.column) continue;  // two losses read one column, or a loss reads an input
            if (i >= inputs || inputs == 1) return;
            // The last column is that of a loss.
            const RequiredColumn read_twice = to[i];
            for (; i + 1 < count; ++i) to[i] = to[i + 1];
            to[i] = read_twice;
            return;
        }
        to[count++] = required;
    }

    template <class R>
    static constexpr void require_regularizer(CompileTimeMessage& message) {
        if (Regularizer<R> || !message.empty()) return;
        message << short_type_name<R>()
                << " is not a regulariser: it lacks `names`, `value` or `static constexpr CompileTimeMessage "
                   "diagnostic(std::span<const LayerInfo>)`";
    }
};

namespace impl {

/// A loss that is not a collection becomes a collection of one part.
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

}}  // namespace cupola::CUPOLA_ABI
