// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce on `Cuda`: what a training sums its gradients by where this is included.
#pragma once

#include <cupola/parallel/impl/nccl_group.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Device>
    requires(Device::has_nccl)
struct GroupOf<NcclAllReduce, Device> {
    using Type = NcclGroup<>;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
