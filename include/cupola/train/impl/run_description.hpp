// SPDX-License-Identifier: Apache-2.0
//
// The description of a training: as entries of its checkpoints, and as the header that a run prints.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/train/impl/run_lines.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Used instead of a lambda in a requires-expression, where nvcc does not accept one.
struct IgnoredEntry {
    void operator()(std::string_view, const std::string&) const {}
};

template <class Net>
[[nodiscard]] constexpr std::string_view samples_of() {
    return Net::input_shape.rank == 3 ? "images" : "samples";
}

/// The name of the averaging policy, including one that is chosen at run time.
template <class Options>
[[nodiscard]] std::string averaging_of(const Options& options) {
    if constexpr (requires { options.averaging.description(); }) {
        return std::string(options.averaging.description());
    } else {
        return std::string(decltype(options.averaging)::name);
    }
}

/// Whether the processes of a policy, or of the chosen one of several, add their sums.
template <class A>
[[nodiscard]] bool processes_add_sums([[maybe_unused]] const A& averaging) {
    if constexpr (requires { averaging.chosen_name(); })
        return averaging.visit([](const auto& chosen) { return processes_add_sums(chosen); });
    else
        return SpansProcesses<CarrierOf<A>> && sums_of_processes<CarrierOf<A>>;
}

/// Calls add(key, value) for each entry; see TrainingRun::describe.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics, class Add>
void describe_training(const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training, const Add& add) {
    const auto& options = training.options;
    add("batch_size", text(options.batch_size));
    add("replicas", text(options.replicas));
    add("accumulation", text(options.gradient_accumulation_steps));
    add("seed", text(options.seed));
    add("loss", options.loss.description());
    add("optimizer", options.optimizer.description());
    add("learning_rate", learning_rate_description_of(options.optimizer));
    if (!options.groups.empty()) add("parameter_groups", description_of(options.groups));
    add("averaging", std::string(averaging_of(options)));
    if constexpr (requires { options.statistics.description(); }) {
        add("bn_stats", std::string(options.statistics.description()));
    } else {
        add("bn_stats", std::string(Statistics::name));
    }
    add("moving_average", options.moving_average.description());
    add("precision", std::string(Net::Precision::name));
    const LossScale loss_scale = options.loss_scale.value_or(loss_scale_of<typename Net::Precision>());
    if (loss_scale != LossScale::constant(1)) add("loss_scale", description_of(loss_scale));
    if constexpr (requires { D::describe(options.device, IgnoredEntry{}); }) {
        // Processes may have different GPUs and choose plans independently; a checkpoint contains the description of
        // the first process.
        const bool alone = training.process().count == 1;
        D::describe(options.device, [&](std::string_view key, std::string value) {
            if (alone || !machine_property::is_of_process(key)) add(key, std::move(value));
        });
    }
    // A collective adds the ranks in its own order, whereas a function of the rows gives the same sum for any number of
    // devices.
    using Carrier = CarrierOf<Averaging>;
    if constexpr (AveragesBuckets<Carrier, D>) {
        add(machine_property::ranks, text(training.memory().devices * training.process().count));
    } else if (processes_add_sums(options.averaging)) {
        add(machine_property::ranks, text(training.process().count));
    }
}

/// Names what a step updates with a policy with a centre or without one. `each` names the devices that have a copy of
/// the parameters.
template <class A>
[[nodiscard]] std::string updated_of(const A& averaging, bool centre, const char* each) {
    if constexpr (requires { averaging.chosen_name(); }) {
        return averaging.visit([&](const auto& chosen) { return updated_of(chosen, centre, each); });
    } else if constexpr (requires { A::updates_centre; }) {
        return "the centre";
    } else {
        return centre ? std::string("each replica its own parameters") : text(each, " its copy of the parameters");
    }
}

/// Prints the plans that the devices have chosen since the last call.
template <class D, class Options>
void print_device_lines(const StandardOutput& output, const Options& options) {
    if constexpr (requires { D::take_lines(options); }) {
        for (const std::string& line : D::take_lines(options)) output.print_message(line);
    }
}

/// Null for a network that is not cut. Programs that cut no network have no code for it.
template <class Training>
[[nodiscard]] const CutInfo* cut_of(const Training& training) {
    if constexpr (may_be_cut<typename Training::NetworkType>) return training.cut();
    return nullptr;
}

/// See TrainingRun::print_header.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
[[gnu::cold]] void print_header(const StandardOutput& output,
                                const DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>& training,
                                const std::string& where, bool placement) {
    const auto& options = training.options;
    const CutInfo* const cut = cut_of(training);
    std::string table = cupola::summary<Net>(options.batch_size);
    if constexpr (cut_is_chosen<Net>) {
        if (cut != nullptr) table += cut->parts_text(options.batch_size);
    }
    output.print_message(table);
    output.print_message(to_string(training.memory()));
    if (cut != nullptr) {
        const int groups = options.devices / static_cast<int>(cut->devices) * training.process().count;
        const std::int64_t of_group = (options.replicas + groups - 1) / groups;
        output.print_message(cut->step_text(of_group * options.gradient_accumulation_steps, options.batch_size));
    }
    const std::string quota = D::host_memory ? usable_processors().quota_note() : std::string();
    output.print_message(
        text("replicas: ", options.replicas, " of ", options.batch_size, ' ', samples_of<Net>(),
             " per step, averaged by ", averaging_of(options), ", on ",
             !where.empty() ? where : text(options.devices, ' ', D::name, " device", options.devices == 1 ? "" : "s"),
             quota));
    if (placement) {
        std::string place(D::name);
        std::ranges::transform(place, place.begin(), [](unsigned char c) { return std::tolower(c); });
        const MemoryReport& memory = training.memory();
        // Replicas that do not wait for each other average no gradients.
        const char* const each = cut == nullptr ? "each device" : "the first device of each group";
        const std::string where_averaged = memory.saved > 0 ? std::string()
                                           : AveragesBuckets<CarrierOf<Averaging>, D>
                                               ? text(", the whole gradient on ", each)
                                               : text(", ", each, " its slice of the gradient");
        output.print_message(placement_lines(Net::layers, options.replicas, options.devices, place,
                                             text(averaging_of(options), where_averaged),
                                             updated_of(options.averaging, memory.centre > 0, each), cut));
    }
    if constexpr (requires { options.averaging.warning(options.replicas); }) {
        const std::string warning = options.averaging.warning(options.replicas);
        if (!warning.empty()) output.print_message("warning: " + warning);
    }
    output.print_message(text("optimiser: ", options.optimizer.description()));
    output.print_message(text("learning rate: ", learning_rate_description_of(options.optimizer)));
    if (!options.groups.empty()) output.print_message("parameter groups: " + description_of(options.groups));
    print_device_lines<D>(output, options.device);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
