// SPDX-License-Identifier: Apache-2.0
//
// The memory of the plans of a part, of which each workspace is that of a batch in flight: the members of Plans that
// only the parts of a network call.
#pragma once

#include <algorithm>
#include <cstddef>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/replicas/plans.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// @cond the class is internal
template <class Device, class T>
auto Plans<Device, T>::shared_bytes() const -> SharedBytes {
    SharedBytes bytes;
    for (const BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
        const PlanBytes& each = plan->plan.bytes();
        bytes.packed = std::max(bytes.packed, each.packed);
        bytes.scratch = std::max(bytes.scratch, aligned(each.scratch));
    }
    for (std::size_t w = 0; w < workspace_count(); ++w) bytes.workspaces += own_bytes(w);
    // Never empty, which would say that nothing is shared.
    if (bytes.packed + bytes.scratch == 0) bytes.packed = 1;
    return bytes;
}

template <class Device, class T>
std::size_t Plans<Device, T>::workspace_count() const {
    std::size_t count = 0;
    for (const BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get())
        count = std::max(count, plan->workspace + 1);
    return count;
}

template <class Device, class T>
std::size_t Plans<Device, T>::own_bytes(std::size_t workspace) const {
    std::size_t bytes = 0;
    for (const BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
        const PlanBytes& each = plan->plan.bytes();
        if (plan->workspace == workspace) bytes = std::max(bytes, each.activations + each.saved);
    }
    return bytes;
}

template <class Device, class T>
void Plans<Device, T>::allocate_sharing() {
    const SharedBytes bytes = shared_bytes();
    workspaces_ = FixedArray<Workspace>(workspace_count());
    for (std::size_t w = 0; w < workspaces_.size(); ++w)
        workspaces_[w].arena =
            typename Device::Arena(own_bytes(w), text("the activations of device ", context_->ordinal()));
    // The scratch memory is first, where it is aligned.
    shared_scratch_ = bytes.scratch;
    shared_ = typename Device::Arena(bytes.scratch + bytes.packed,
                                     text("the packed weights of device ", context_->ordinal()));
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get())
        plan->plan.bind(workspaces_[plan->workspace].arena.data(), shared_.data() + bytes.scratch, shared_.data());
}
/// @endcond

}}}  // namespace cupola::CUPOLA_ABI::impl
