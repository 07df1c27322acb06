// SPDX-License-Identifier: Apache-2.0
//
// compiled.hpp's other half: what a training on `Host` needs that does not depend on the network.
#pragma once

#include <cupola/compiled.hpp>

#ifdef CUPOLA_OPS

#include <cstdint>
#include <span>
#include <string>

#include <cupola/data/in_memory.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

/// `keyword` is `extern template`, or `template`.
#define CUPOLA_COMPILED_TRAINING(keyword, T)                                                                        \
    keyword class impl::DeviceWorker<Host, T>;                                                                      \
    keyword std::string impl::first_not_finite<Host, T>(impl::DeviceWorker<Host, T>&, Plan<Host, T>&,               \
                                                        std::span<const LayerInfo>, const float*, const BatchView&, \
                                                        const RngKey&, const float*);
#define CUPOLA_COMPILED_DATA(keyword)                           \
    keyword class TrainingBatches<InMemory, IdentityTransform>; \
    keyword BatchView InMemoryBatches::operator()<HostContext>(std::int64_t, int, HostContext&);

CUPOLA_COMPILED_TRAINING(extern template, float)
CUPOLA_COMPILED_TRAINING(extern template, BFloat16)
CUPOLA_COMPILED_DATA(extern template)

}  // namespace cupola::inline CUPOLA_ABI

#endif
