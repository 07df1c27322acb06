// SPDX-License-Identifier: Apache-2.0
//
// Why a network in parts (net/pipeline/split.hpp) cannot be trained as the other template arguments of a training say,
// as one compiler diagnostic; and which numbers of devices it can be trained on.
#pragma once

#include <cstddef>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/parallel/agreement_kind.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Empty if it can be trained. `Net` has part_begins.
template <class Net, class Averaging, class D, class Statistics>
[[nodiscard]] consteval CompileTimeMessage cut_diagnostic() {
    CompileTimeMessage message;
    constexpr std::size_t parts = Net::part_begins.size();
    if constexpr (parts > 1 && Net::buffer_elements > 0 && Statistics::synchronized) {
        message << short_type_name<Statistics>()
                << " synchronizes the replicas inside a pass, and the parts of a network that is cut run the passes of "
                   "several batches at a time: use FirstReplica, LastReplica, AllReplicas or Pooled";
    } else if constexpr (!D::host_memory || D::max_steps_in_flight > 1) {
        message << "a network that is cut into parts can be trained on Host, and not on " << D::name
                << ", where passes are queued";
    } else if constexpr (AgreementKind<Averaging, D>::asynchronous) {
        message << "with " << Averaging::name
                << " no replica waits for another, and the parts of a network that is cut run the batches of a step "
                   "together: train the network without its cuts";
    } else if constexpr (CutInfoOf<Net>::value.splits_backward) {
        message << "the timetable " << CutInfoOf<Net>::value.timetable
                << " divides backward, which no plan of a network can do yet";
    }
    return message;
}

/// Throws InvalidArgument unless `devices` are groups that have all parts each, at most as many as the replicas.
[[gnu::cold]] inline void require_groups(const CutInfo& cut, int replicas, int devices) {
    const int of_group = static_cast<int>(cut.devices);
    require(devices >= of_group && devices % of_group == 0 && devices / of_group <= replicas, "a training of ",
            replicas, replicas == 1 ? " replica" : " replicas", " of a network in ", cut.parts(),
            " parts must have 1 to ", replicas, " times ", of_group, of_group == 1 ? " device" : " devices", ", not ",
            devices);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
