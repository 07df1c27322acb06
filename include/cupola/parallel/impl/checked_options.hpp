// SPDX-License-Identifier: Apache-2.0
//
// Checks a training's options before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/parallel/training_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The members of TrainingOptions whose types are the same in every training.
struct CommonOptions {
    int replicas = 1, devices = 1;
    std::int64_t batch_size = 0;
    std::span<const std::int64_t> other_batch_sizes{};
    std::int64_t evaluation_batch_size = 0;
    int gradient_accumulation_steps = 1;
    int check_every = 0;
    LossScale loss_scale = LossScale::constant(1);
    std::span<const NamedInitializer> initializers{};
    std::span<const ParameterGroup> groups{};
    /// The name of the optimiser's type if it ignores a segment's factors; otherwise empty.
    std::string_view ignores_factors{};
    /// Whether batch normalisations use the statistics of all replicas' batches.
    bool synchronized = false;
};

/// Throws InvalidArgument if an option is invalid for a network of these layers.
[[gnu::cold]] void require_valid_options(const CommonOptions& o, std::span<const LayerInfo> layers);

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/parallel/impl/checked_options.ipp>
#endif
