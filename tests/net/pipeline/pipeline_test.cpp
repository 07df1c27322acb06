// SPDX-License-Identifier: Apache-2.0
//
// The figures of networks in parts, as constant expressions and as plans have them.
#include <cupola/net/pipeline/pipeline.hpp>

#include "../../test.hpp"

#include <utility>

#include <cupola/layers.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/plan.hpp>

#include "../../devices.hpp"
#include "../../instructions.hpp"
#include "../../throws_with.hpp"

using namespace cupola;

namespace {

struct PipelineHalves : Split<ResNet<44>, 2> {};
struct PipelineNamed : SplitAt<ResNet<44>, "layer2.0"> {};
struct PipelineNarrow : InPrecision<MixedBFloat16, PipelineHalves> {};
struct PipelineFrozen : Frozen<PipelineNamed, "conv1.*", "bn1.*", "layer1.*"> {};

static_assert(pipeline<PipelineHalves>({.batches = 8}).bubble < 0.15);
static_assert(pipeline<PipelineHalves>({.batches = 8}).slot_count == std::array<std::int64_t, 2>{2, 1});
static_assert(pipeline<PipelineHalves, GPipe>({.batches = 8}).slot_count == std::array<std::int64_t, 2>{8, 8});
static_assert(pipeline<PipelineHalves>({.batches = 8}).copies == 16);
/// Fewer batches than parts.
static_assert(pipeline<PipelineHalves>({.batches = 1}).bubble > 0.49);
/// Nothing below the cut is trained: only values cross.
static_assert(pipeline<PipelineFrozen>({.batches = 8}).copies == 8);

/// 1F1B with one slot per part.
struct PipelineFewSlots : OneForwardOneBackward {
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t) { return 1; }
};

/// 400 layers in 8 parts, within the compiler's default limits.
template <class Numbers>
struct PipelineLong;
template <std::size_t... i>
struct PipelineLong<std::index_sequence<i...>> {
    template <std::size_t>
    using Pair = Linear<8>;
    using Net = Sequential<Input<8>, std::conditional_t<i % 2 == 0, Pair<i>, Sigmoid>...>;
};
struct PipelineLongNet : PipelineLong<std::make_index_sequence<400>>::Net {};
struct PipelineLongParts : Split<PipelineLongNet, 8> {};
static_assert(PipelineLongNet::layers.size() == 400);
static_assert(pipeline<PipelineLongParts>({.batches = 32, .batch_size = 2}).bubble < 0.2);

}  // namespace

TEST_CASE("the memory of a part is that of its plan") {
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    const auto check = [&]<class Net>(Net*) {
        constexpr auto figures = pipeline<Net>({.batches = 3, .batch_size = 2});
        for (std::size_t k = 0; k < 2; ++k) {
            const auto plan = PlanOf<Net, AnyDevice>::template make<Net>(
                context, {.batch = 2, .layers = figures.layers[k], .keep_layers = keep_layers});
            CHECK(plan.bytes().activations == figures.activations[k]);
            CHECK(figures.entering[k] ==
                  (k == 0 ? 0 : 2 * sizeof(float) * static_cast<std::size_t>(plan.nodes().front().input.size())));
            CHECK(figures.bytes[k] == static_cast<std::size_t>(figures.slot_count[k]) *
                                          (figures.activations[k] + aligned(figures.entering[k])));
        }
    };
    check(static_cast<PipelineHalves*>(nullptr));
    if (computes_bfloat16()) check(static_cast<PipelineNarrow*>(nullptr));
    check(static_cast<PipelineFrozen*>(nullptr));
}

TEST_CASE("figures that cannot be given say why") {
    CHECK(contains(message_of<InvalidArgument>([] { static_cast<void>(pipeline<PipelineHalves>({.batches = 0})); }),
                   "at least one batch"));
    CHECK(contains(message_of<InvalidArgument>(
                       [] { static_cast<void>(pipeline<PipelineHalves, PipelineFewSlots>({.batches = 4})); }),
                   "the timetable 1F1B of 2 parts and 4 batches deadlocks: "));
}
