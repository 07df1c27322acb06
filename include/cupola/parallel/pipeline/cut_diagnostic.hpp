// SPDX-License-Identifier: Apache-2.0
//
// CutChecks: why a network in parts (net/pipeline/split.hpp) cannot be trained as the other template arguments of a
// training say, as one compiler diagnostic; and which numbers of devices it can be trained on. Only a program that cuts
// a network compiles it.
#pragma once

#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/pipeline/part_copies.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

constexpr CompileTimeMessage& cannot_synchronize(CompileTimeMessage& message, std::string_view statistics) {
    return message << statistics
                   << " synchronizes the replicas inside a pass, and the parts of a network that is cut run the passes "
                      "of several batches at a time: use FirstReplica, LastReplica, AllReplicas or Pooled";
}
constexpr CompileTimeMessage& cannot_split_backward(CompileTimeMessage& message, std::string_view timetable) {
    return message << "the timetable " << timetable << " divides backward, which no plan of a network can do yet";
}

template <class D>
struct CutChecks {
    /// Of a device whose passes are queued, only one with PartCopies of its own can compute the parts of a network.
    static constexpr bool computes_parts =
        PartCopies<typename D::Kernels>::possible && !(D::host_memory && D::max_steps_in_flight > 1);

    /// Empty if `Net`, which is cut by its type or by the options, can be trained.
    template <class Net, class Averaging, class Statistics>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message;
        if constexpr (cut_is_chosen<Net>) {
            if constexpr (!computes_parts) cannot_compute_parts(message, "a network whose cut is chosen");
        } else {
            if constexpr (Net::part_begins.size() > 1 && Net::buffer_elements > 0 && Statistics::synchronized) {
                cannot_synchronize(message, short_type_name<Statistics>());
            } else if constexpr (!computes_parts) {
                cannot_compute_parts(message, "a network that is cut into parts");
            } else if constexpr (AgreementKind<Averaging, D>::asynchronous) {
                message << "with " << Averaging::name
                        << " no replica waits for another, and the parts of a network that is cut run the batches of a "
                           "step together: train the network without its cuts";
            } else if constexpr (CutInfoOf<Net>::value.splits_backward) {
                cannot_split_backward(message, CutInfoOf<Net>::value.timetable);
            }
        }
        return message;
    }

    /// Throws InvalidArgument for a chosen cut that cannot be trained. `synchronizes` is the policy for the statistics
    /// of batch normalisation, if it synchronizes the replicas and the network has any.
    [[gnu::cold]] static void require_trainable(const CutInfo& cut, std::string_view synchronizes) {
        CompileTimeMessage message;
        if (!synchronizes.empty())
            cannot_synchronize(message, synchronizes);
        else if (cut.splits_backward)
            cannot_split_backward(message, cut.timetable);
        require(message.empty(), std::string_view(message.characters, message.size));
    }
    /// Throws InvalidArgument unless `devices` are groups that have all parts each, at most as many as the replicas.
    [[gnu::cold]] static void require_groups(const CutInfo& cut, int replicas, int devices) {
        const int of_group = static_cast<int>(cut.devices);
        require(devices >= of_group && devices % of_group == 0 && devices / of_group <= replicas, "a training of ",
                replicas, replicas == 1 ? " replica" : " replicas", " of a network in ", cut.parts(),
                " parts must have 1 to ", replicas, " times ", of_group, of_group == 1 ? " device" : " devices",
                ", not ", devices);
    }

private:
    static constexpr void cannot_compute_parts(CompileTimeMessage& message, std::string_view network) {
        message << network << " can be trained on Host and on Cuda, and not on " << D::name
                << ", where passes are queued";
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
