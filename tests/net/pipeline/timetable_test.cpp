// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/pipeline/cut_choice.hpp, cupola/net/pipeline/cut_info.hpp, cupola/net/pipeline/timetable_of.hpp
//
// Timetables as constant expressions: length, bubble, slots, and what is wrong with those that cannot be run.
#include <cupola/net/pipeline/timetable.hpp>

#include "../../test.hpp"

#include <string>
#include <vector>

#include <cupola/layers.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/pipeline/split.hpp>

using namespace cupola;

namespace {

/// Timetables of P parts and m batches, each pass of a part as long as its forward.
static_assert(timetable<OneForwardOneBackward, 4, 8>.length == 3 * (8 + 3));
static_assert(timetable<GPipe, 4, 8>.length == 3 * (8 + 3));
static_assert(timetable<OneForwardOneBackward, 4, 8>.slot_count == std::array<std::int64_t, 4>{4, 3, 2, 1});
static_assert(timetable<GPipe, 4, 8>.slot_count == std::array<std::int64_t, 4>{8, 8, 8, 8});
/// Fewer batches than parts.
static_assert(timetable<OneForwardOneBackward, 4, 2>.slot_count == std::array<std::int64_t, 4>{2, 2, 2, 1});
static_assert(timetable<OneForwardOneBackward, 4, 2>.length == 3 * (2 + 3));
static_assert(timetable<GPipe, 3, 1>.length == 9 && timetable<OneForwardOneBackward, 1, 5>.bubble == 0);

/// With costs of backward passes of their own.
template <class S>
constexpr std::int64_t length_of(std::array<std::int64_t, 2> forward, std::array<std::int64_t, 2> backward) {
    std::array<std::int64_t, 2> slots{};
    return run_timetable<S>(forward, backward, 2, slots).length;
}
static_assert(length_of<OneForwardOneBackward>({2, 3}, {5, 4}) == 21 && length_of<GPipe>({2, 3}, {5, 4}) == 22);

/// 1F1B with as many slots per part as `slots_` says.
template <std::int64_t slots_>
struct FewSlots : OneForwardOneBackward {
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t) { return slots_; }
};

/// GPipe whose backward begins with the last batch.
struct LastFirst : GPipe {
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t parts,
                                           std::int64_t batches) {
        PipelineAction action = GPipe::action(device, i, parts, batches);
        if (i >= batches) action.batch = batches - 1 - action.batch;
        return action;
    }
};
/// A list that ends too early, has an action twice, or one of another device.
struct Short : GPipe {
    static constexpr std::int64_t actions(std::size_t, std::size_t, std::int64_t batches) { return 2 * batches - 1; }
};
struct Twice : GPipe {
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t parts,
                                           std::int64_t batches) {
        return GPipe::action(device, i == 1 ? 0 : i, parts, batches);
    }
};
struct OfOthers : GPipe {
    static constexpr PipelineAction action(std::size_t, std::int64_t i, std::size_t parts, std::int64_t batches) {
        return GPipe::action(0, i, parts, batches);
    }
};

/// Two parts per device: device d has the parts d and d + P / 2. All forward passes first.
struct TwoPartsPerDevice {
    static constexpr std::string_view name = "two parts per device";
    static constexpr std::size_t devices(std::size_t parts) { return parts / 2; }
    static constexpr std::size_t device_of(std::size_t part, std::size_t parts) { return part % devices(parts); }
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t batches) { return batches; }
    static constexpr std::int64_t actions(std::size_t, std::size_t, std::int64_t batches) { return 4 * batches; }
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t parts,
                                           std::int64_t batches) {
        const std::size_t later = device + devices(parts);
        if (i < batches) return {PipelineWork::forward, device, i};
        if (i < 2 * batches) return {PipelineWork::forward, later, i - batches};
        if (i < 3 * batches) return {PipelineWork::backward, later, i - 2 * batches};
        return {PipelineWork::backward, device, i - 3 * batches};
    }
};

/// A backward pass in two halves, for two parts: the first part's bubble at the end is filled with gradients of
/// parameters that it has left for later.
struct ZeroBubble {
    static constexpr std::string_view name = "zero-bubble";
    static constexpr bool splits_backward = true;
    static constexpr std::size_t devices(std::size_t parts) { return parts; }
    static constexpr std::size_t device_of(std::size_t part, std::size_t) { return part; }
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t batches) { return batches; }
    static constexpr std::int64_t actions(std::size_t, std::size_t, std::int64_t batches) { return 3 * batches; }
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t, std::int64_t batches) {
        const std::int64_t ahead = device == 0 ? 2 : 1;
        if (i < ahead) return {PipelineWork::forward, device, i};
        const std::int64_t next = i - ahead, full = batches - ahead;
        // Backward, its parameters and the next forward in turn; then backward and its parameters.
        const auto turn = static_cast<PipelineWork>(next % 3);
        if (next < 3 * full) {
            if (turn == PipelineWork::forward) return {PipelineWork::backward, device, next / 3};
            if (turn == PipelineWork::backward) return {PipelineWork::parameter_gradients, device, next / 3};
            return {PipelineWork::forward, device, ahead + next / 3};
        }
        const std::int64_t rest = next - 3 * full;
        return {rest % 2 == 0 ? PipelineWork::backward : PipelineWork::parameter_gradients, device, full + rest / 2};
    }
};

template <class S>
[[nodiscard]] constexpr TimetableRun run(std::size_t parts, std::int64_t batches) {
    FixedArray<std::int64_t> costs(parts), slots(parts);
    for (std::int64_t& cost : costs) cost = 1;
    return run_timetable<S>(costs, batches, slots);
}
template <class S>
[[nodiscard]] std::string diagnostic(std::size_t parts, std::int64_t batches) {
    const CompileTimeMessage message = timetable_diagnostic<S>(run<S>(parts, batches), parts, batches);
    return {message.characters, message.size};
}

static_assert(run<FewSlots<1>>(4, 8).error == TimetableError::deadlock);
static_assert(run<FewSlots<4>>(4, 8).error == TimetableError::none);

}  // namespace

TEST_CASE("part k of 1F1B needs min(m, P - k) slots, and one slot per part deadlocks") {
    for (std::size_t parts = 1; parts <= 6; ++parts) {
        for (std::int64_t batches = 1; batches <= 9; ++batches) {
            CAPTURE(parts);
            CAPTURE(batches);
            std::vector<std::int64_t> costs(parts), slots(parts);
            for (std::size_t k = 0; k < parts; ++k) costs[k] = 3 + static_cast<std::int64_t>(k * k % 5);
            const TimetableRun f1b = run_timetable<OneForwardOneBackward>(costs, batches, slots);
            REQUIRE(f1b.error == TimetableError::none);
            for (std::size_t k = 0; k < parts; ++k)
                CHECK(slots[k] == std::min(batches, static_cast<std::int64_t>(parts - k)));
            std::ranges::fill(slots, 0);
            const TimetableRun gpipe = run_timetable<GPipe>(costs, batches, slots);
            REQUIRE(gpipe.error == TimetableError::none);
            for (const std::int64_t each : slots) CHECK(each == batches);
            CHECK(gpipe.busy == f1b.busy);
            CHECK(f1b.length >= 3 * batches * *std::ranges::max_element(costs));
            // With parts of equal cost both take m + P - 1 batches of time.
            CHECK(run<OneForwardOneBackward>(parts, batches).length ==
                  3 * (batches + static_cast<std::int64_t>(parts) - 1));
            CHECK(run<GPipe>(parts, batches).length == 3 * (batches + static_cast<std::int64_t>(parts) - 1));
            if (parts > 1 && batches > 1) CHECK(run<FewSlots<1>>(parts, batches).error == TimetableError::deadlock);
        }
    }
}

TEST_CASE("a timetable that cannot be run says where") {
    CHECK(diagnostic<OneForwardOneBackward>(4, 8).empty());
    CHECK(diagnostic<FewSlots<1>>(2, 8) ==
          "the timetable 1F1B of 2 parts and 8 batches deadlocks: action 1 of device 0, forward of part 0 for batch 1, "
          "never begins; the part has 1 slots");
    CHECK(
        diagnostic<LastFirst>(2, 3) ==
        "the timetable GPipe of 2 parts and 3 batches is wrong: action 3 of device 0, backward of part 0 for batch 2, "
        "comes before that of an earlier batch");
    CHECK(diagnostic<Short>(2, 3) ==
          "the timetable GPipe of 2 parts and 3 batches ends without backward of part 0 for batch 2");
    CHECK(diagnostic<Twice>(2, 3) ==
          "the timetable GPipe of 2 parts and 3 batches is wrong: action 1 of device 0, forward of part 0 for batch 0, "
          "was done before");
    CHECK(diagnostic<OfOthers>(2, 3) ==
          "the timetable GPipe of 2 parts and 3 batches is wrong: action 0 of device 1, forward of part 0 for batch 0, "
          "is not one of that device");
}

TEST_CASE("a timetable may give a device several parts, and split backward") {
    // Parts of half the cost: the pipeline fills in half of the time.
    const TimetableRun two = run<TwoPartsPerDevice>(4, 8);
    CHECK(two.error == TimetableError::none);
    CHECK(two.length == 3 * (2 * 8 + 1));
    CHECK(two.bubble(2) == doctest::Approx(1.0 / 17));
    CHECK(run<OneForwardOneBackward>(2, 8).bubble(2) == doctest::Approx(1.0 / 9));
    const TimetableRun zero = run<ZeroBubble>(2, 8);
    CHECK(zero.error == TimetableError::none);
    CHECK(zero.busy == 2 * 8 * 3);
    CHECK(zero.length < run<OneForwardOneBackward>(2, 8).length);
}

TEST_CASE("a network in parts and its timetable are values of the same content") {
    struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Named<"second", Linear<4>>, Sigmoid, Linear<3>> {};
    struct Cut : SplitAt<Net, "second"> {};
    struct CutGPipe : Frozen<Cut, "second.*"> {
        using PipelineTimetable = GPipe;
    };
    static_assert(std::same_as<TimetableOf<Cut>, OneForwardOneBackward>);
    static_assert(std::same_as<TimetableOf<Frozen<CutGPipe, "second.*">>, GPipe>);
    constexpr const CutInfo& cut = CutInfoOf<CutGPipe>::value;
    CHECK(CutInfoOf<Cut>::value.timetable == "1F1B");
    CHECK(cut.timetable == "GPipe");
    CHECK(cut.parts() == 2);
    CHECK(cut.devices == 2);
    CHECK(cut.layers_of(0) == LayerRange{0, 2});
    CHECK(cut.layers_of(1) == LayerRange{2, no_layer});
    CHECK(cut.device_of(1, 2) == 1);
    CHECK(cut.slot_count(0, 2, 7) == 7);
    CHECK(cut.actions(1, 2, 7) == 14);
    CHECK(cut.action(1, 8, 2, 7) == PipelineAction{PipelineWork::backward, 1, 1});
    CHECK(cut.problem(2, 7).empty());
    CHECK(!cut.splits_backward);
    CHECK((cut.keep_layers == &keep_layers));
}
