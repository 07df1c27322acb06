// SPDX-License-Identifier: Apache-2.0
//
// Checks a training's options before they are used.
#pragma once

#include <span>
#include <string_view>

#include <cupola/net/table.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/parallel/replicas/replica_settings.hpp>
#include <cupola/parallel/training_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws InvalidArgument if an option is invalid for a network of these layers; of `o` the numbers of replicas, of
/// samples and of batches, `loss_scale` and `synchronized`. `ignores_factors` is the name of the optimiser's type if it
/// ignores a segment's factors; otherwise empty.
[[gnu::cold]] void require_valid_options(const ReplicaSettings& o, int check_every,
                                         std::span<const NamedInitializer> initializers,
                                         std::span<const ParameterGroup> groups, std::string_view ignores_factors,
                                         std::span<const LayerInfo> layers);

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/parallel/impl/checked_options.ipp>
#endif
