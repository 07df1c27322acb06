// SPDX-License-Identifier: Apache-2.0
//
// The timetable of a network in parts, and both as values for a training.
//
//   struct Halves : Split<ResNet<44>, 2> { using PipelineTimetable = GPipe; };      without it: OneForwardOneBackward
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/pipeline/node_range.hpp>
#include <cupola/net/pipeline/timetable.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class Net>
struct TimetableOfNet {
    using Type = OneForwardOneBackward;
};
template <class Net>
    requires requires { typename Net::PipelineTimetable; }
struct TimetableOfNet<Net> {
    using Type = typename Net::PipelineTimetable;
};

/// What is wrong with a timetable of equal parts; empty if it can be run.
template <Timetable S>
[[nodiscard, gnu::cold]] std::string timetable_problem(std::size_t parts, std::int64_t batches) {
    FixedArray<std::int64_t> costs(parts), most(parts);
    for (std::int64_t& cost : costs) cost = 1;
    const TimetableRun run = run_timetable<S>(costs.span(), batches, most.span());
    const CompileTimeMessage message = timetable_diagnostic<S>(run, parts, batches);
    return std::string(message.characters, message.size);
}

/// The texts of CutInfo, in net/pipeline/pipeline.hpp.
[[nodiscard, gnu::cold]] inline std::string write_parts(const CutInfo& cut, std::int64_t batch_size);
[[nodiscard, gnu::cold]] inline std::string write_step(const CutInfo& cut, std::int64_t batches,
                                                       std::int64_t batch_size);

}  // namespace impl

/// A cut into this many parts by a timetable, without its network: the value of CutChoice::timetable.
template <Timetable S>
[[nodiscard]] constexpr CutInfo by_timetable(std::size_t parts) {
    return {.timetable = S::name,
            .devices = S::devices(parts),
            .device_of = &S::device_of,
            .slot_count = &S::slot_count,
            .actions = &S::actions,
            .action = &S::action,
            .splits_backward = impl::splits_backward<S>(),
            .problem = &impl::timetable_problem<S>,
            .run = &run_timetable<S>,
            .write_parts = &impl::write_parts,
            .write_step = &impl::write_step,
            .keep_layers = &keep_layers};
}

namespace impl {

/// Completes a cut with its network.
template <class Net>
[[nodiscard]] constexpr CutInfo cut_of_network(CutInfo cut, std::span<const std::size_t> begins) {
    cut.layers = Net::layers;
    cut.fusion = Net::fusion;
    cut.element_bytes = sizeof(typename Net::Precision::Activation);
    cut.begins = begins;
    return cut;
}

}  // namespace impl

/// Net::PipelineTimetable, which may be a member of the network's struct; without it OneForwardOneBackward.
template <class Net>
using TimetableOf = typename impl::TimetableOfNet<Net>::Type;

/// See CutInfo.
template <class Net>
struct CutInfoOf {
    using S = TimetableOf<Net>;
    static_assert(Timetable<S>, "PipelineTimetable is a timetable: see net/pipeline/timetable.hpp");
    static constexpr CutInfo value =
        impl::cut_of_network<Net>(by_timetable<S>(Net::part_begins.size()), Net::part_begins);
};

}}  // namespace cupola::CUPOLA_ABI
