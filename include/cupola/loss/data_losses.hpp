// SPDX-License-Identifier: Apache-2.0
//
// The losses of the data as a list, of one loss or of one per output (loss/several_outputs.hpp): their entries, and the
// errors in the outputs and the columns that they read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The maximum number of outputs of a network with a loss.
inline constexpr std::size_t max_outputs = 8;

/// One loss of the data: its name in reports, the output and the column that it reads, and its factor. `output` is
/// empty for that of a network with one output.
struct LossEntry {
    std::string_view name;
    std::string_view output{};
    std::string_view column = "target";
    double factor = 1;
    /// Whether each Weighted around the loss has a factor that is finite and more than 0, and so has their product.
    bool has_valid_factor = true;
};

namespace impl {

/// A loss and its factor.
template <class L>
struct Factored {
    using Type = L;
    static constexpr double factor = 1;
    static constexpr bool is_valid = true;
    static const Type& get(const L& loss) { return loss; }
};

/// The name of a loss; empty for a type without one, which is reported elsewhere.
template <class L>
[[nodiscard]] consteval std::string_view loss_name() {
    if constexpr (requires { std::string_view(L::name); })
        return L::name;
    else
        return {};
}

/// The losses of the data as a list: their types, and get<k>(data), the loss number k.
template <class Data>
struct DataLosses {
    static constexpr bool by_output = false;
    using Types = std::tuple<typename Factored<Data>::Type>;
    static constexpr std::array<LossEntry, 1> entries{LossEntry{.name = loss_name<typename Factored<Data>::Type>(),
                                                                .factor = Factored<Data>::factor,
                                                                .has_valid_factor = Factored<Data>::is_valid}};
    template <std::size_t k>
    static const auto& get(const Data& data) {
        return Factored<Data>::get(data);
    }
};

/// The loss number k of the data.
template <class Data, std::size_t k>
using DataLossAt = std::tuple_element_t<k, typename DataLosses<Data>::Types>;

/// The outputs of a network.
class NetworkOutputs {
public:
    constexpr explicit NetworkOutputs(std::span<const LayerInfo> layers) : count_(count_outputs(layers)) {
        if (count_ <= max_outputs) find_outputs(layers, std::span(list_).first(count_));
    }
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    [[nodiscard]] constexpr const NetworkOutput& operator[](std::size_t i) const { return list_[i]; }
    /// The number of the output of a loss; size() if there is no output of its name.
    [[nodiscard]] constexpr std::size_t find(std::string_view name) const {
        if (name.empty()) return count_ - 1;
        std::size_t i = 0;
        while (i < count_ && list_[i].name != name) ++i;
        return i;
    }
    constexpr void list(CompileTimeMessage& to) const {
        for (std::size_t i = 0; i < count_; ++i)
            to << (i == 0 ? "" : ", ")
               << (list_[i].name.empty() ? std::string_view("one without a name") : list_[i].name);
    }

private:
    std::size_t count_;
    std::array<NetworkOutput, max_outputs> list_{};
};

/// The error in the outputs that the losses read; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage outputs_diagnostic(std::span<const LossEntry> entries, bool by_output,
                                                              const NetworkOutputs& outputs) {
    CompileTimeMessage message;
    for (const LossEntry& each : entries) {
        if (each.has_valid_factor) continue;
        message << "the factor of a Weighted loss must be finite and more than 0; that of " << each.name << " is not";
        return message;
    }
    if (outputs.size() > max_outputs) {
        message << "the network has " << static_cast<std::int64_t>(outputs.size()) << " outputs, and at most "
                << static_cast<std::int64_t>(max_outputs) << " can be trained";
        return message;
    }
    if (!by_output) {
        if (outputs.size() == 1) return message;
        message << "the network has the outputs ";
        outputs.list(message);
        message << ", and the loss " << entries[0].name << " is of one: use Losses with an At for each output";
        return message;
    }
    std::array<bool, max_outputs> found{};
    for (const LossEntry& each : entries) {
        const std::size_t k = outputs.find(each.output);
        if (k == outputs.size() || each.output.empty()) {
            message << "Losses has a loss at the output " << each.output << ", but the outputs of the network are: ";
            outputs.list(message);
            return message;
        }
        if (found[k]) {
            message << "Losses has two losses at the output " << each.output;
            return message;
        }
        found[k] = true;
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (found[k]) continue;
        message << "Losses has no loss at the output "
                << (outputs[k].name.empty()
                        ? std::string_view("at the end of the network, which needs an Output to have a name")
                        : outputs[k].name);
        return message;
    }
    return message;
}

/// The error in the columns that a network of these layers and its losses read; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage columns_diagnostic(std::span<const LayerInfo> layers,
                                                              std::span<const RequiredColumn> of_losses) {
    CompileTimeMessage message;
    std::array<RequiredColumn, max_columns> read{};
    std::size_t count = 0;
    const auto add = [&](const RequiredColumn& each) {
        if (!message.empty()) return;
        for (std::size_t i = 0; i < count; ++i) {
            const ColumnSpec &own = each.column, &other = read[i].column;
            if (own.name != other.name) continue;
            if (own.type == other.type && own.shape == other.shape) return;
            message << read[i].reader << " reads the column " << own.name << " as " << to_string(other.type) << " "
                    << other.shape << ", and " << each.reader << " as " << to_string(own.type) << " " << own.shape;
            return;
        }
        if (count == max_columns) {
            message << "the network and its losses read more than " << static_cast<std::int64_t>(max_columns)
                    << " columns of a batch";
            return;
        }
        read[count++] = each;
    };
    add(required_input(layers.front().input, layers.front().column_type));
    for (const LayerInfo& layer : layers) {
        if (!layer.column.empty()) add({{layer.column, layer.column_type, layer.output}, "the network"});
    }
    for (const RequiredColumn& each : of_losses) add(each);
    return message;
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
