// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/agreement/same_training.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/net/network_description.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/run/same_settings.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL void ComparedSettings::add(std::string_view name, std::string_view value) {
    settings_.emplace_back(name, value);
}

CUPOLA_DECL void ComparedSettings::add_layers(std::span<const LayerInfo> layers) {
    add("list of layers", network_description(layers));
}

CUPOLA_DECL void ComparedSettings::add(const Options& options) {
    add("number of replicas", text(options.replicas));
    add("batch_size", text(options.batch_size));
    std::string sizes;
    for (const std::int64_t size : options.other_batch_sizes) sizes += text(sizes.empty() ? "" : ", ", size);
    add("other_batch_sizes", sizes);
    add("gradient_accumulation_steps", text(options.gradient_accumulation_steps));
    add("seed", text(options.seed));
    add("check_every", text(options.check_every));
    add("moving_average", options.moving_average.description());
    if (options.loss_scale) add("loss_scale", description_of(*options.loss_scale));
    add("skip_steps_without_labels", options.skip_steps_without_labels ? "true" : "false");
    add("parameter groups", description_of(options.groups));
}

CUPOLA_DECL void ComparedSettings::require_same(ProcessGroup& processes) const {
    require_same_settings(processes, settings_);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
