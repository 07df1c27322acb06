// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/parallel/impl/checked_options.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/parallel/impl/checked_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws InvalidArgument for a single value per channel, which equals its mean: the output would be the bias for every
/// input, and no gradient would reach the layers before.
[[gnu::cold]] CUPOLA_DECL void require_several_values_per_channel(const ReplicaSettings& o,
                                                                  std::span<const LayerInfo> layers) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        if (layer.kind != LayerKind::batch_norm || layer.uses_running_statistics ||
            layer.input.size() != layer.input.channels())
            continue;
        const auto check = [&](std::int64_t batch) {
            require(batch * (o.synchronized ? o.replicas : 1) > 1, "layer ", i + 1, " (",
                    layer.name.empty() ? text() : text(layer.name, ", "), layer.type, ") has one value per channel in ",
                    o.synchronized ? "the batches of all replicas together" : "a batch",
                    ", whose mean is that value: its ", "samples are ", to_string(layer.input), " and ",
                    batch == o.batch_size ? "batch_size is " : "other_batch_sizes contains ", batch,
                    "; a training needs at least 2 values");
        };
        check(o.batch_size);
        for (const std::int64_t size : o.other_batch_sizes) check(size);
    }
}

CUPOLA_DECL void require_valid_options(const ReplicaSettings& o, int check_every,
                                       std::span<const NamedInitializer> initializers,
                                       std::span<const ParameterGroup> groups, std::string_view ignores_factors,
                                       std::span<const LayerInfo> layers) {
    constexpr int limit = 1 << 20;
    require(o.replicas >= 1 && o.replicas <= limit, "a training must have 1 to ", limit, " replicas, not ", o.replicas);
    require(o.devices >= 1 && o.devices <= o.replicas, "a training of ", o.replicas,
            o.replicas == 1 ? " replica must have 1 device" : text(" replicas must have 1 to ", o.replicas, " devices"),
            ", not ", o.devices);
    require(o.batch_size >= 1, "a batch must have at least 1 sample, not ", o.batch_size);
    constexpr std::int64_t max_samples = std::int64_t{1} << 36;
    for (const std::int64_t size : {o.batch_size, o.evaluation_batch_size})
        require(size <= max_samples, "a batch can have at most ", max_samples, " samples, not ", size);
    for (const std::int64_t size : o.other_batch_sizes) {
        require(size >= 1 && size <= o.batch_size, "the other batch sizes must be 1 to batch_size, ", o.batch_size,
                ", not ", size);
    }
    require(o.evaluation_batch_size >= 0, "evaluation_batch_size must be 0 (that of training) or more, not ",
            o.evaluation_batch_size);
    require(o.gradient_accumulation_steps >= 1 && o.gradient_accumulation_steps <= limit,
            "gradient_accumulation_steps must be 1 to ", limit, ", not ", o.gradient_accumulation_steps);
    require(o.replicas <= limit / o.gradient_accumulation_steps, "a step can have at most ", limit,
            " batches, not those of ", o.replicas, " replicas times ", o.gradient_accumulation_steps,
            " gradient_accumulation_steps");
    require(check_every >= 0, "check_every must be 0 (never) or more steps, not ", check_every);
    const char* const problem = o.loss_scale.problem();
    require(problem == nullptr, "a loss scale ", problem == nullptr ? "" : problem, "; it is ",
            description_of(o.loss_scale));
    for (const NamedInitializer& named : initializers) {
        bool found = false;
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            for (std::size_t p = 0; p < layers[layer].parameters.count; ++p) {
                found = found || parameter_name(layers, layer, p) == named.parameter;
            }
        }
        require(found, "there is an initialiser for ", named.parameter, ", which the network does not have");
        const char* const wrong = problem_of(named.initializer);
        require(wrong == nullptr, "the parameter ", named.parameter, " ", wrong == nullptr ? "" : wrong);
        for (const NamedInitializer* other = initializers.data(); other != &named; ++other)
            require(other->parameter != named.parameter, "there are two initialisers for ", named.parameter);
    }
    require_several_values_per_channel(o, layers);
    require_valid_groups(groups, layers);
    require(groups.empty() || ignores_factors.empty(),
            "parameter groups need an optimiser that uses their factors, and ", ignores_factors,
            " does not declare `static constexpr bool uses_segment_factors = true`");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
