// SPDX-License-Identifier: Apache-2.0
//
// Plans over a part of a network: two and more of them, one after another, have the bits of the plan of the whole at
// every place where the network may be cut.
#include <cupola/net/pipeline/node_range.hpp>

#include "../../test.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include <cupola/layers.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/pipeline/cuts.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/recompute.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/tied.hpp>

#include "../../devices.hpp"
#include "../../instructions.hpp"
#include "../../throws_with.hpp"

using namespace cupola;

namespace {

struct RangeNet : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"norm1", BatchNorm2d<>>, ReLU,
                             Named<"block", Residual<Identity, Conv2d<4, 3>, Sigmoid, Named<"inner", Conv2d<4, 3>>>>,
                             ReLU, Dropout<0.5>, Named<"conv2", Conv2d<5, 3>>, ReLU, Conv2d<5, 3>, ReLU, MaxPool2d<2>,
                             Flatten, Named<"hidden", Linear<7>>, Sigmoid, Dropout<0.3>, Tied<"twice", Linear<7>>,
                             Sigmoid, Tied<"twice", Linear<7>>, Linear<4>> {};
struct RangeNarrow : InPrecision<MixedBFloat16, RangeNet> {};
struct RangeUnfused : Unfused<RangeNet> {};
/// Blocks that are computed again, between the parts and in them.
struct RangeRecompute : Recompute<RangeNet, "block", "conv2", "hidden", "twice"> {};
/// Layers below the trained ones, and some that are not trained between them.
struct RangeFrozen : Frozen<RangeNet, "conv1.*", "norm1.*", "hidden.*"> {};

/// Everything that a step of two batches writes; dropout and accumulation included.
struct RangeResult {
    std::vector<float> outputs, gradients, statistics;
    bool intact = true;
    [[nodiscard]] bool same_bits(const RangeResult& other) const {
        const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
            return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        };
        return same(outputs, other.outputs) && same(gradients, other.gradients) && same(statistics, other.statistics);
    }
};

constexpr std::int64_t range_batch = 3;

/// A plan of some layers with its memory, and the value that enters it.
template <class Net, class D>
struct RangePart {
    RangePart(typename D::Context& context, const LayerRange& layers)
        : plan(PlanOf<Net, D>::template make<Net>(
              context, {.batch = range_batch, .layers = layers, .keep_layers = keep_layers})),
          memory(context, plan.bytes().total()),
          input(context, elements(plan.nodes().front().input)) {
        plan.bind(memory.bytes());
    }
    static std::size_t elements(const Shape& shape) {
        return static_cast<std::size_t>(range_batch * shape.size()) * sizeof(float);
    }

    PlanOf<Net, D> plan;
    impl::CheckMemory<D> memory, input;
};

/// The parts of `Net` that begin at the given layers, the first of which is 0.
template <class Net, class D>
[[nodiscard]] RangeResult run_parts(const std::vector<std::size_t>& begins) {
    typename D::Context context(0, device_options<D>(1));
    const auto team = context.team();
    std::vector<std::unique_ptr<RangePart<Net, D>>> parts;
    for (std::size_t k = 0; k < begins.size(); ++k) {
        const std::size_t end = k + 1 < begins.size() ? begins[k + 1] : no_layer;
        parts.push_back(std::make_unique<RangePart<Net, D>>(context, LayerRange{begins[k], end}));
    }
    std::vector<float> values(static_cast<std::size_t>(Net::parameter_elements));
    initialize(values, normal(0.4), 1, 1, 3, 0);
    impl::CheckMemory<D> parameters(context, values.size() * sizeof(float)),
        gradients(context, static_cast<std::size_t>(Net::trained_elements) * sizeof(float)),
        running(context, static_cast<std::size_t>(Net::buffer_elements) * sizeof(float)),
        statistics(context, static_cast<std::size_t>(Net::buffer_elements) * sizeof(float));
    parameters.write(values);
    running.write(initial_buffers(Net::layers));
    // Padding is not written; NaNs of the same bits are there in each run.
    for (auto& part : parts) part->plan.prepare(context, parameters.data(), running.data());
    const auto copy = [&](float* to, const float* from, std::size_t bytes) {
        std::vector<std::byte> values_between(bytes);
        D::copy_to_host(context, values_between.data(), reinterpret_cast<const std::byte*>(from), bytes);
        D::copy_from_host(context, reinterpret_cast<std::byte*>(to), values_between.data(), bytes);
    };
    RangeResult result;
    for (std::uint32_t number = 0; number < 2; ++number) {
        const RngKey key{.seed = 5, .step = 9, .first_sample = range_batch * number};
        std::vector<float> samples(static_cast<std::size_t>(range_batch * Net::input_shape.size())),
            seed(static_cast<std::size_t>(range_batch * Net::output_shape.size()));
        initialize(samples, normal(1.0), 1, 1, 4, number);
        initialize(seed, normal(1.0), 1, 1, 6, number);
        parts.front()->input.write(samples);
        for (std::size_t k = 0; k < parts.size(); ++k) {
            RangePart<Net, D>& part = *parts[k];
            const float* const output = part.plan.forward(context, part.input.data(), parameters.data(), key,
                                                          {.running = running.data(), .batch = statistics.data()});
            const std::size_t bytes = RangePart<Net, D>::elements(part.plan.nodes().back().output);
            if (k + 1 < parts.size()) {
                copy(parts[k + 1]->input.data(), output, bytes);
                continue;
            }
            std::vector<float> last(bytes / sizeof(float));
            D::copy_to_host(context, reinterpret_cast<std::byte*>(last.data()),
                            reinterpret_cast<const std::byte*>(output), bytes);
            result.outputs.insert(result.outputs.end(), last.begin(), last.end());
        }
        D::copy_from_host(context, reinterpret_cast<std::byte*>(parts.back()->plan.output_gradient()),
                          reinterpret_cast<const std::byte*>(seed.data()), seed.size() * sizeof(float));
        for (std::size_t k = parts.size(); k-- > 0;) {
            RangePart<Net, D>& part = *parts[k];
            part.plan.backward(context, part.input.data(), parameters.data(), gradients.data(), key, number > 0);
            if (k == 0 || !part.plan.options().input_gradient) continue;
            REQUIRE(parts[k - 1]->plan.has_backward());
            copy(parts[k - 1]->plan.output_gradient(), part.plan.input_gradient(),
                 RangePart<Net, D>::elements(part.plan.nodes().front().input));
        }
    }
    result.gradients = gradients.read();
    result.statistics = statistics.read();
    for (auto& part : parts) result.intact = result.intact && part->memory.intact() && part->input.intact();
    result.intact = result.intact && gradients.intact() && statistics.intact();
    return result;
}

template <class Net>
[[nodiscard]] std::vector<std::size_t> legal_cuts() {
    std::vector<std::size_t> result;
    const FixedArray<CutPlace> places = find_cuts(Net::layers, Net::fusion);
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i].obstacle == CutObstacle::none) result.push_back(i);
    }
    return result;
}

template <class Net, class D>
void check_cuts(std::size_t count) {
    const std::vector<std::size_t> cuts = legal_cuts<Net>();
    CHECK(cuts.size() == count);
    const RangeResult whole = run_parts<Net, D>({0});
    CHECK(whole.intact);
    std::vector<std::size_t> all{0};
    for (const std::size_t cut : cuts) {
        CAPTURE(cut);
        const RangeResult parts = run_parts<Net, D>({0, cut});
        CHECK(parts.intact);
        CHECK(parts.same_bits(whole));
        all.push_back(cut);
    }
    CHECK(run_parts<Net, D>(all).same_bits(whole));
}

}  // namespace

TYPED_TEST_CASE("parts of a network have the bits of the whole at every cut", D, Devices) {
    check_cuts<RangeNet, D>(9);
    if (!D::host_memory || computes_bfloat16()) check_cuts<RangeNarrow, D>(9);
    check_cuts<RangeUnfused, D>(15);
    check_cuts<RangeRecompute, D>(9);
}

TYPED_TEST_CASE("parts of a network with frozen layers have the bits of the whole at every cut", D, Devices) {
    check_cuts<RangeFrozen, D>(9);
}

TEST_CASE("a part below the trained layers has no backward pass, and the one behind it no gradient of its input") {
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    const std::size_t cut = legal_cuts<RangeFrozen>().at(0);
    const auto part = [&]<class Net>(Net*, std::size_t begin, std::size_t end) {
        return Plan<AnyDevice>::make<Net>(context, {.batch = 2, .layers = {begin, end}, .keep_layers = keep_layers});
    };
    auto below = part(static_cast<RangeFrozen*>(nullptr), 0, cut);
    auto above = part(static_cast<RangeFrozen*>(nullptr), cut, no_layer);
    CHECK_FALSE(below.has_backward());
    CHECK(below.buckets().empty());
    CHECK(above.has_backward());
    CHECK_FALSE(above.options().input_gradient);
    CHECK(part(static_cast<RangeNet*>(nullptr), cut, no_layer).options().input_gradient);
}

TEST_CASE("the buckets of the parts are the ranges of the arena, one after another") {
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    std::vector<std::size_t> begins{0};
    for (const std::size_t cut : legal_cuts<RangeNet>()) begins.push_back(cut);
    std::int64_t next = 0;
    for (std::size_t k = 0; k < begins.size(); ++k) {
        const std::size_t end = k + 1 < begins.size() ? begins[k + 1] : no_layer;
        const auto plan = Plan<AnyDevice>::make<RangeNet>(
            context, {.batch = 2, .bucket_elements = 1, .layers = {begins[k], end}, .keep_layers = keep_layers});
        for (std::size_t b = plan.buckets().size(); b-- > 0;) {
            CHECK(plan.buckets()[b].begin == next);
            next = plan.buckets()[b].end;
        }
    }
    CHECK(next == RangeNet::trained_elements);
}

TEST_CASE("a part that does not begin where the network may be cut is rejected") {
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    const auto make = [&](std::size_t begin, std::size_t end) {
        static_cast<void>(
            Plan<AnyDevice>::make<RangeNet>(context, {.layers = {begin, end}, .keep_layers = keep_layers}));
    };
    CHECK(contains(message_of<InvalidArgument>([&] { make(1, no_layer); }),
                   "a part cannot begin at layer 2 (norm1, BatchNorm2d"));
    CHECK(contains(message_of<InvalidArgument>([&] { make(0, 6); }), "across the cut"));
    CHECK(contains(message_of<InvalidArgument>([&] { make(4, 4); }),
                   "a plan needs at least one layer, not the layers [4, 4)"));
    CHECK(contains(message_of<InvalidArgument>([&] { make(5, 2); }), "at least one layer"));
    CHECK(contains(message_of<InvalidArgument>([&] { make(99, no_layer); }), "at least one layer"));
    CHECK_THROWS_WITH_AS(static_cast<void>(Plan<AnyDevice>::make<RangeNet>(context, {.layers = {4, no_layer}})),
                         "a plan of a part of the layers needs `keep_layers` of net/pipeline/node_range.hpp",
                         InvalidArgument);
}
