// SPDX-License-Identifier: Apache-2.0
//
// The settings that the processes of a training compare before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/network_description.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/batches_fingerprint.hpp>
#include <cupola/processes/run/policy.hpp>  // make_run_policy
#include <cupola/processes/run/same_settings.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws InvalidArgument unless all processes have the same settings, compared as names and texts. The numbers of the
/// devices may differ.
template <class Net, class Loss, class D, class Options>
void require_same_training(ProcessGroup& processes, const Options& options) {
    std::vector<std::pair<std::string, std::string>> settings;
    const auto add = [&](std::string_view name, std::string value) {
        settings.emplace_back(std::string(name), std::move(value));
    };
    add("network", std::string(type_name<Net>()));
    add("list of layers", network_description(Net::layers));
    add("loss", std::string(type_name<Loss>()));
    add("loss's settings", options.loss.description());
    add("optimizer", std::string(type_name<decltype(options.optimizer)>()));
    if constexpr (requires { options.optimizer.description(); })
        add("optimizer's settings", std::string(options.optimizer.description()));
    if constexpr (requires { learning_rate_description_of(options.optimizer); })
        add("learning rate", learning_rate_description_of(options.optimizer));
    add("averaging", std::string(decltype(options.averaging)::name));
    const auto add_policy = [&](const auto& policy) {
        if constexpr (requires { policy.bucket_bytes; }) add("bucket_bytes", text(policy.bucket_bytes));
        if constexpr (requires { policy.max_groups; }) add("max_groups", text(policy.max_groups));
    };
    add_policy(options.averaging);
    if constexpr (requires { options.averaging.policy; }) add_policy(options.averaging.policy);  // Compressed's policy
    add("statistics policy", std::string(decltype(options.statistics)::name));
    if constexpr (requires { options.statistics.description(); })
        add("statistics policy", std::string(options.statistics.description()));
    add("number of replicas", text(options.replicas));
    add("batch_size", text(options.batch_size));
    std::string sizes;
    for (const std::int64_t size : options.other_batch_sizes) sizes += text(sizes.empty() ? "" : ", ", size);
    add("other_batch_sizes", std::move(sizes));
    add("gradient_accumulation_steps", text(options.gradient_accumulation_steps));
    add("seed", text(options.seed));
    add("check_every", text(options.check_every));
    add("moving_average", options.moving_average.description());
    if (options.loss_scale) add("loss_scale", description_of(*options.loss_scale));
    add("skip_steps_without_labels", options.skip_steps_without_labels ? "true" : "false");
    add("parameter groups", description_of(options.groups));
    const auto add_property = [&](std::string_view name, std::string value) {
        if (!machine_property::is_of_process(name)) add(name, std::move(value));
    };
    if constexpr (requires { D::describe(options.device, add_property); }) D::describe(options.device, add_property);
    require_same_settings(processes, settings);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
