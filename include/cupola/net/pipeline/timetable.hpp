// SPDX-License-Identifier: Apache-2.0
//
// Timetables of a pipeline: for each device the order in which it computes the passes of its parts for the batches of a
// step. A timetable is a type whose functions are constant expressions, so that its length, its bubble and the memory
// that it needs are known to the compiler, and one that deadlocks does not compile.
//
//   static_assert(timetable<OneForwardOneBackward, 4, 8>.length == 3 * (8 + 3));   with parts of equal cost
//
// A timetable of your own has these static constexpr members (`GPipe` is the shortest example):
//
//   std::string_view name                                         for messages
//   std::size_t devices(parts)                                    how many there are
//   std::size_t device_of(part, parts)                            the device of each part; a device may have several
//   std::int64_t slot_count(part, parts, batches)                 how many batches a part may have in flight
//   std::int64_t actions(device, parts, batches)                  the length of a device's list
//   PipelineAction action(device, i, parts, batches)              its entry i
//
// and, if backward is divided so that the gradients of the parameters come later (zero-bubble), `bool splits_backward`.
// A batch is in flight in a part from the beginning of its forward pass there to the end of its backward pass.
//
// The gradients of the parameters are added in the order of the batches, so that a pipeline has the bits of the network
// on one device: a timetable must run backward in this order, from the first batch to the last.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/cut_info.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// See the head of this file.
template <class S>
concept Timetable = requires(std::size_t n, std::int64_t m) {
    { S::name } -> std::convertible_to<std::string_view>;
    { S::devices(n) } -> std::same_as<std::size_t>;
    { S::device_of(n, n) } -> std::same_as<std::size_t>;
    { S::slot_count(n, n, m) } -> std::same_as<std::int64_t>;
    { S::actions(n, n, m) } -> std::same_as<std::int64_t>;
    { S::action(n, m, n, m) } -> std::same_as<PipelineAction>;
};

/// One part per device. All forward passes, then all backward passes: every part keeps all batches.
struct GPipe {
    static constexpr std::string_view name = "GPipe";
    static constexpr std::size_t devices(std::size_t parts) { return parts; }
    static constexpr std::size_t device_of(std::size_t part, std::size_t) { return part; }
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t batches) { return batches; }
    static constexpr std::int64_t actions(std::size_t, std::size_t, std::int64_t batches) { return 2 * batches; }
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t, std::int64_t batches) {
        if (i < batches) return {PipelineWork::forward, device, i};
        return {PipelineWork::backward, device, i - batches};
    }
};

/// One part per device. Part k of P runs P - k batches forward (all, if there are fewer), and then in turn one backward
/// and one forward: it keeps at most P - k batches. As long as GPipe where all parts cost the same.
struct OneForwardOneBackward {
    static constexpr std::string_view name = "1F1B";
    static constexpr std::size_t devices(std::size_t parts) { return parts; }
    static constexpr std::size_t device_of(std::size_t part, std::size_t) { return part; }
    static constexpr std::int64_t slot_count(std::size_t part, std::size_t parts, std::int64_t batches) {
        return std::min(batches, static_cast<std::int64_t>(parts - part));
    }
    static constexpr std::int64_t actions(std::size_t, std::size_t, std::int64_t batches) { return 2 * batches; }
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t parts,
                                           std::int64_t batches) {
        const std::int64_t first = slot_count(device, parts, batches), alternating = 2 * (batches - first);
        if (i < first) return {PipelineWork::forward, device, i};
        const std::int64_t next = i - first;
        if (next >= alternating) return {PipelineWork::backward, device, batches - first + next - alternating};
        if (next % 2 == 0) return {PipelineWork::backward, device, next / 2};
        return {PipelineWork::forward, device, first + next / 2};
    }
};

/// What is wrong with a timetable.
enum class TimetableError : std::uint8_t {
    none,
    /// Every device waits for another, or for a slot.
    deadlock,
    /// An action of a part of another device, of no part or of no batch, or one that a timetable of this kind does not
    /// have.
    misplaced,
    /// An action that was done before.
    repeated,
    /// A backward pass that adds the gradients of a later batch before those of an earlier one.
    out_of_order,
    /// The lists end, and a pass of some part and batch was not in them.
    missing
};

/// The outcome of a timetable that was run with the cost of each part.
struct TimetableRun {
    TimetableError error = TimetableError::none;
    /// Where the error is: the device, the number of its action, and the action; for a missing one, its part.
    std::size_t device = 0;
    std::int64_t number = 0;
    PipelineAction action{};
    /// From the beginning of the first action to the end of the last, and the sum of the costs of all actions.
    std::int64_t length = 0, busy = 0;

    /// The fraction of the devices' time in which they do nothing.
    [[nodiscard]] constexpr double bubble(std::size_t devices) const {
        return length == 0
                   ? 0.0
                   : 1.0 - static_cast<double>(busy) / (static_cast<double>(length) * static_cast<double>(devices));
    }
};

namespace impl {

/// Whether backward is divided.
template <Timetable S>
[[nodiscard]] consteval bool splits_backward() {
    if constexpr (requires { S::splits_backward; }) return S::splits_backward;
    return false;
}

/// Runs the lists of the devices.
template <Timetable S>
class TimetableClock {
public:
    /// Backward costs twice as much as forward if `backward` is empty.
    constexpr TimetableClock(std::span<const std::int64_t> costs, std::span<const std::int64_t> backward,
                             std::int64_t batches, std::span<std::int64_t> max_in_flight)
        : costs_(costs),
          backward_costs_(backward),
          batches_(batches),
          max_in_flight_(max_in_flight),
          forward_(costs.size() * static_cast<std::size_t>(batches)),
          backward_(forward_.size()),
          in_flight_(costs.size()),
          finished_(costs.size()),
          next_(S::devices(costs.size())),
          time_(next_.size()) {
        for (std::int64_t& end : forward_) end = never;
        for (std::int64_t& end : backward_) end = never;
    }

    constexpr TimetableRun run() {
        for (bool moved = true; moved && run_.error == TimetableError::none;) {
            moved = false;
            for (std::size_t d = 0; d < next_.size(); ++d) {
                while (run_.error == TimetableError::none && next_[d] < S::actions(d, parts(), batches_) && act(d))
                    moved = true;
            }
        }
        for (std::size_t d = 0; d < next_.size() && run_.error == TimetableError::none; ++d) {
            run_.length = std::max(run_.length, time_[d]);
            if (next_[d] < S::actions(d, parts(), batches_)) fail(TimetableError::deadlock, d);
        }
        for (std::size_t k = 0; k < parts() && run_.error == TimetableError::none; ++k) {
            if (finished_[k] < batches_) {
                run_.error = TimetableError::missing;
                run_.device = S::device_of(k, parts());
                run_.action = {last_work, k, finished_[k]};
            }
        }
        return run_;
    }

private:
    static constexpr std::int64_t never = -1;
    static constexpr bool splits = splits_backward<S>();
    /// The work after which a batch is no longer in flight.
    static constexpr PipelineWork last_work = splits ? PipelineWork::parameter_gradients : PipelineWork::backward;

    [[nodiscard]] constexpr std::size_t parts() const { return costs_.size(); }
    [[nodiscard]] constexpr std::size_t at(std::size_t part, std::int64_t batch) const {
        return part * static_cast<std::size_t>(batches_) + static_cast<std::size_t>(batch);
    }
    constexpr bool fail(TimetableError error, std::size_t device) {
        run_.error = error;
        run_.device = device;
        run_.number = next_[device];
        run_.action = S::action(device, next_[device], parts(), batches_);
        return false;
    }

    [[nodiscard]] constexpr std::int64_t cost_of(const PipelineAction& action) const {
        const std::int64_t forward = costs_[action.part];
        if (action.work == PipelineWork::forward) return forward;
        const std::int64_t backward =
            backward_costs_.empty() ? saturating_product(2, forward) : backward_costs_[action.part];
        return splits ? backward / 2 : backward;
    }

    /// Runs the next action of a device; false if it must wait, or is wrong.
    constexpr bool act(std::size_t d) {
        const PipelineAction action = S::action(d, next_[d], parts(), batches_);
        const std::size_t k = action.part;
        if (k >= parts() || action.batch < 0 || action.batch >= batches_ || S::device_of(k, parts()) != d ||
            (action.work == PipelineWork::parameter_gradients && !splits))
            return fail(TimetableError::misplaced, d);
        const std::size_t place = at(k, action.batch);
        const std::int64_t cost = cost_of(action);
        std::int64_t ready = 0;
        if (action.work == PipelineWork::forward) {
            if (forward_[place] != never) return fail(TimetableError::repeated, d);
            if (k > 0) ready = forward_[at(k - 1, action.batch)];
            if (ready == never || in_flight_[k] >= S::slot_count(k, parts(), batches_)) return false;
            max_in_flight_[k] = std::max(max_in_flight_[k], ++in_flight_[k]);
        } else if (action.work == PipelineWork::backward) {
            if (backward_[place] != never) return fail(TimetableError::repeated, d);
            if (!splits && action.batch != finished_[k]) return fail(TimetableError::out_of_order, d);
            ready = k + 1 == parts() ? forward_[place] : backward_[at(k + 1, action.batch)];
            if (ready == never || forward_[place] == never) return false;
        } else {
            if (action.batch < finished_[k]) return fail(TimetableError::repeated, d);
            if (action.batch != finished_[k]) return fail(TimetableError::out_of_order, d);
            ready = backward_[place];
            if (ready == never) return false;
        }
        time_[d] = saturating_sum(std::max(time_[d], ready), cost);
        run_.busy = saturating_sum(run_.busy, cost);
        if (action.work == PipelineWork::forward) forward_[place] = time_[d];
        if (action.work == PipelineWork::backward) backward_[place] = time_[d];
        if (action.work == last_work) {
            ++finished_[k];
            --in_flight_[k];
        }
        ++next_[d];
        return true;
    }

    std::span<const std::int64_t> costs_, backward_costs_;
    std::int64_t batches_;
    std::span<std::int64_t> max_in_flight_;
    /// The end of the pass of each part and batch.
    FixedArray<std::int64_t> forward_, backward_;
    /// Per part: the batches in flight, and those that are finished.
    FixedArray<std::int64_t> in_flight_, finished_;
    /// Per device: the number of its next action, and the end of its last one.
    FixedArray<std::int64_t> next_, time_;
    TimetableRun run_;
};

}  // namespace impl

/// Runs the timetable for as many parts as `costs` has: the cost of a forward pass of each; backward costs twice as
/// much, or once and once where it is split. Copies cost nothing. Writes to `max_in_flight`, as long as `costs` and 0
/// before, how many slots of each part were in use at the same time. A pass begins when its input is there and its part
/// has a slot.
template <Timetable S>
[[nodiscard]] constexpr TimetableRun run_timetable(std::span<const std::int64_t> costs, std::int64_t batches,
                                                   std::span<std::int64_t> max_in_flight) {
    return impl::TimetableClock<S>(costs, {}, batches, max_in_flight).run();
}
/// The same with the costs of backward passes too, measured times for example.
template <Timetable S>
[[nodiscard]] constexpr TimetableRun run_timetable(std::span<const std::int64_t> forward,
                                                   std::span<const std::int64_t> backward, std::int64_t batches,
                                                   std::span<std::int64_t> max_in_flight) {
    return impl::TimetableClock<S>(forward, backward, batches, max_in_flight).run();
}

namespace impl {

/// `slot_count` is that of the part of a deadlock.
[[nodiscard, gnu::cold]] constexpr CompileTimeMessage timetable_error(const TimetableRun& run, std::string_view name,
                                                                      std::int64_t slot_count, std::size_t parts,
                                                                      std::int64_t batches) {
    CompileTimeMessage message;
    const std::size_t part = run.action.part;
    message << "the timetable " << name << " of " << static_cast<std::int64_t>(parts) << " parts and " << batches
            << " batches ";
    const auto pass = [&] {
        message << (run.action.work == PipelineWork::forward    ? "forward"
                    : run.action.work == PipelineWork::backward ? "backward"
                                                                : "the gradients of the parameters")
                << " of part " << static_cast<std::int64_t>(part) << " for batch " << run.action.batch;
    };
    if (run.error == TimetableError::missing) {
        message << "ends without ";
        pass();
        return message;
    }
    message << (run.error == TimetableError::deadlock ? "deadlocks: " : "is wrong: ") << "action " << run.number
            << " of device " << static_cast<std::int64_t>(run.device) << ", ";
    pass();
    switch (run.error) {
        case TimetableError::deadlock: message << ", never begins; the part has " << slot_count << " slots"; break;
        case TimetableError::repeated: message << ", was done before"; break;
        case TimetableError::out_of_order: message << ", comes before that of an earlier batch"; break;
        default: message << ", is not one of that device"; break;
    }
    return message;
}

}  // namespace impl

/// The error of a timetable as a message; empty if there is none.
template <Timetable S>
[[nodiscard]] constexpr CompileTimeMessage timetable_diagnostic(const TimetableRun& run, std::size_t parts,
                                                                std::int64_t batches) {
    if (run.error == TimetableError::none) return {};
    const bool deadlock = run.error == TimetableError::deadlock;
    return impl::timetable_error(run, S::name, deadlock ? S::slot_count(run.action.part, parts, batches) : 0, parts,
                                 batches);
}

/// The figures of a timetable whose parts all cost the same.
template <std::size_t parts>
struct TimetableFigures {
    /// In units of a part's forward pass.
    std::int64_t length = 0;
    double bubble = 0;
    /// The slots that each part needs.
    std::array<std::int64_t, parts> slot_count{};
    CompileTimeMessage diagnostic{};
};

namespace impl {

template <Timetable S, std::size_t parts, std::int64_t batches>
[[nodiscard]] consteval TimetableFigures<parts> figures_of_timetable() {
    TimetableFigures<parts> figures;
    std::array<std::int64_t, parts> costs{};
    for (std::int64_t& cost : costs) cost = 1;
    const TimetableRun run = run_timetable<S>(costs, batches, figures.slot_count);
    figures.length = run.length;
    figures.bubble = run.bubble(S::devices(parts));
    figures.diagnostic = timetable_diagnostic<S>(run, parts, batches);
    return figures;
}

template <Timetable S, std::size_t parts, std::int64_t batches>
struct CheckedTimetable {
    static_assert(parts > 0 && batches > 0);
    static constexpr TimetableFigures<parts> figures = figures_of_timetable<S, parts, batches>();
    static_assert(static_assert_message<figures.diagnostic>());
};

}  // namespace impl

/// The figures of a timetable, which does not compile if it deadlocks or is wrong: the message names the device and its
/// action.
template <Timetable S, std::size_t parts, std::int64_t batches>
inline constexpr const TimetableFigures<parts>& timetable = impl::CheckedTimetable<S, parts, batches>::figures;

}}  // namespace cupola::CUPOLA_ABI
