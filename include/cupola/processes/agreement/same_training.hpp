// SPDX-License-Identifier: Apache-2.0
//
// The settings that the processes of a training compare before it begins.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/loss_scale.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/batches_fingerprint.hpp>
#include <cupola/processes/run/policy.hpp>  // make_run_policy

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The settings of a training by their names, in the order in which they are added.
class ComparedSettings {
public:
    void add(std::string_view name, std::string_view value);
    /// The options that every training has, without the types of its TrainingOptions, to which the spans refer.
    struct Options {
        int replicas = 1;
        std::int64_t batch_size = 0;
        std::span<const std::int64_t> other_batch_sizes{};
        int gradient_accumulation_steps = 1;
        std::uint64_t seed = 0;
        int check_every = 0;
        MovingAverage moving_average{};
        std::optional<LossScale> loss_scale{};
        bool skip_steps_without_labels = false;
        std::span<const ParameterGroup> groups{};
    };
    void add(const Options& options);
    void add_layers(std::span<const LayerInfo> layers);
    /// Throws InvalidArgument, on every process, unless all have the same.
    void require_same(ProcessGroup& processes) const;

private:
    RunSettings settings_;
};

/// Throws InvalidArgument unless all processes have the same settings, compared as names and texts. The numbers of the
/// devices may differ.
template <class Net, class Loss, class D, class Options>
void require_same_training(ProcessGroup& processes, const Options& options) {
    ComparedSettings settings;
    settings.add("network", type_name<Net>());
    settings.add_layers(Net::layers);
    settings.add("loss", type_name<Loss>());
    settings.add("loss's settings", options.loss.description());
    settings.add("optimizer", type_name<decltype(options.optimizer)>());
    if constexpr (requires { options.optimizer.description(); })
        settings.add("optimizer's settings", options.optimizer.description());
    if constexpr (requires { learning_rate_description_of(options.optimizer); })
        settings.add("learning rate", learning_rate_description_of(options.optimizer));
    settings.add("averaging", decltype(options.averaging)::name);
    constexpr bool is_chosen = requires { options.averaging.chosen_name(); };
    if constexpr (AgreesOnCentre<decltype(options.averaging)> || is_chosen) {
        // A policy without a description of its own is described by its rule.
        if constexpr (requires { options.averaging.description(); })
            settings.add("averaging's settings", options.averaging.description());
        else
            settings.add("averaging's settings", description_of(options.averaging.rule(options.replicas)));
        if constexpr (requires { options.averaging.outer.state_arenas(); })
            settings.add("outer learning rate", learning_rate_description_of(options.averaging.outer));
    }
    const auto add_policy = [&](const auto& policy) {
        if constexpr (requires { policy.bucket_bytes; }) settings.add("bucket_bytes", text(policy.bucket_bytes));
        if constexpr (requires { policy.max_groups; }) settings.add("max_groups", text(policy.max_groups));
    };
    const auto add_carrier = [&](const auto& averaging) {
        const auto& carrier = carrier_of(averaging);
        add_policy(carrier);
        if constexpr (requires { carrier.policy; }) add_policy(carrier.policy);  // Compressed's policy
    };
    if constexpr (is_chosen)
        options.averaging.visit(add_carrier);
    else
        add_carrier(options.averaging);
    settings.add("statistics policy", decltype(options.statistics)::name);
    if constexpr (requires { options.statistics.description(); })
        settings.add("statistics policy", options.statistics.description());
    settings.add({.replicas = options.replicas,
                  .batch_size = options.batch_size,
                  .other_batch_sizes = span_of(options.other_batch_sizes),
                  .gradient_accumulation_steps = options.gradient_accumulation_steps,
                  .seed = options.seed,
                  .check_every = options.check_every,
                  .moving_average = options.moving_average,
                  .loss_scale = options.loss_scale,
                  .skip_steps_without_labels = options.skip_steps_without_labels,
                  .groups = span_of(options.groups)});
    const auto add_property = [&](std::string_view name, const std::string& value) {
        if (!machine_property::is_of_process(name)) settings.add(name, value);
    };
    if constexpr (requires { D::describe(options.device, add_property); }) D::describe(options.device, add_property);
    settings.require_same(processes);
}

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/processes/agreement/same_training.ipp>
#endif
