// SPDX-License-Identifier: Apache-2.0
//
// The stages of two rows: instantiated once for a device and an element type, in networks that have such layers. A
// backend that has ops::LocalResponseNorm has ops::PooledNorm and ops::NormedPool.
#pragma once

#include <memory>
#include <span>

#include <cupola/net/fusion.hpp>
#include <cupola/net/stage.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/normed_pool.hpp>
#include <cupola/ops/pooled_norm.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// `info.pair` is one.
template <class Device, class T>
[[nodiscard, gnu::cold]] std::unique_ptr<Stage<Device, T>> make_pair_stage(std::span<const Row> rows,
                                                                           const StageInfo& info,
                                                                           const Site<Device, T>& site) {
    const Row &first = rows[info.row], &second = rows[info.row + 1];
    if (info.pair == FusedPair::pooled_norm) {
        return std::unique_ptr<Stage<Device, T>>(new StageOf<Device, T, ops::PooledNorm<Device, T>>(
            site, first.traits.pooling(first.input), second.traits.local_norm(second.input)));
    }
    return std::unique_ptr<Stage<Device, T>>(new StageOf<Device, T, ops::NormedPool<Device, T>>(
        site, first.traits.local_norm(first.input), second.traits.pooling(second.input)));
}

template <class Device, class T>
using PairStageMaker = std::unique_ptr<Stage<Device, T>> (*)(std::span<const Row>, const StageInfo&,
                                                             const Site<Device, T>&);

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
