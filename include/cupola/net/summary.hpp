// SPDX-License-Identifier: Apache-2.0
//
// A network as a readable table: layer, output, parameters, multiply-adds of one sample's forward pass, and the memory
// of its activations for a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// "1,068,298".
[[nodiscard]] std::string grouped(std::int64_t number);

/// ", frozen" or ", bias frozen" after a layer's description; empty if it is trained.
[[nodiscard, gnu::cold]] std::string frozen_text(const LayerInfo& layer);

/// "8,896 of 9,546 parameters are frozen; frozen batch normalisations use their running statistics"; empty without
/// frozen parameters.
[[nodiscard, gnu::cold]] std::string frozen_line(std::span<const LayerInfo> layers);

/// What is computed again in backward (net/recompute.hpp), what that adds, and what the activations of a batch need
/// without it; empty for a network without such blocks.
[[nodiscard, gnu::cold]] std::string recompute_line(std::span<const LayerInfo> layers, bool fusion, std::int64_t batch,
                                                    std::size_t element_bytes);

/// Columns padded to their widest cell; the first two are left-aligned, numbers right-aligned.
[[nodiscard]] std::string aligned_table(const std::vector<std::vector<std::string>>& cells);

[[nodiscard]] std::string summary(std::span<const LayerInfo> layers, const Shape& input, bool fusion,
                                  std::int64_t batch, std::size_t activation_arena, std::size_t element_bytes);

}  // namespace impl

/// The table of `Net` for one replica's batch. A "+" marks a layer that the fusion pass computes inside the one above.
/// For a network with frozen parameters it says which they are, and whose statistics the frozen batch normalisations
/// use; for one of which blocks are computed again in backward, what that costs and saves.
/// A network in parts (net/pipeline/split.hpp) has a line per part.
template <Network Net>
[[nodiscard]] std::string summary(std::int64_t batch) {
    std::string result = impl::summary(Net::layers, Net::input_shape, Net::fusion, batch, activation_bytes<Net>(batch),
                                       sizeof(typename Net::Precision::Activation));
    if constexpr (requires { Net::part_begins; }) result += CutInfoOf<Net>::value.parts_text(batch);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/net/summary.ipp>
#endif
