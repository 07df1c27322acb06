// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/fold_batch_norm.hpp, cupola/ops/fold_batch_norm.hpp, cupola/ops/host/fold_batch_norm.hpp
#include <cupola/net/impl/folded_norm.hpp>

#include "../../test.hpp"

#include <cupola/net/plan.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

// clang-format off
struct Net : Sequential<Input<9, 7, 3>,
    Named<"with_bias", Conv2d<8, 3>>, Named<"norm1", BatchNorm2d<0.01>>, ReLU,
    Residual<Identity, Named<"without", Conv2d<8, 3, no_bias>>, Named<"norm2", BatchNorm2d<>>>, ReLU,
    MaxPool2d<2>, Named<"norm3", BatchNorm2d<>>, Named<"per_position", Linear<6, per_position, no_bias>>,
    Named<"norm4", BatchNorm2d<>>, Flatten, Linear<5>> {};
// clang-format on

std::vector<float> random(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count), 0.0F);
    initialize(values, normal(0.5), 1, 1, 3, seed);
    return values;
}

template <class N>
std::vector<float> run(const std::vector<float>& parameters, const std::vector<float>& running,
                       const std::vector<float>& batch) {
    constexpr std::int64_t samples = 4;
    HostContext context(0, {.threads = 2});
    auto plan = Plan<Host>::make<N>(context, {.batch = samples, .training = false});
    HostArena arena(plan.bytes().total(), "test");
    plan.bind(arena.data());
    plan.prepare(context, parameters.data(), running.data());
    const float* const output =
        plan.forward(context, batch.data(), parameters.data(), {.training = false}, {.running = running.data()});
    return {output, output + samples * N::output_shape.size()};
}

std::vector<float> running_statistics_of_a_training() {
    std::vector<float> running = random(Net::buffer_elements, 2);
    for (const RunningStatistics& s : running_statistics(Net::layers)) {
        for (std::int64_t c = 0; c < s.channels; ++c) {
            float& variance = running[static_cast<std::size_t>(s.variance + c)];
            variance = 0.1F + variance * variance;
        }
    }
    return running;
}

}  // namespace

TEST_CASE("outside training a batch normalisation is folded only into a convolution before it") {
    std::array<NodeInfo, Net::layer_count> nodes{};
    const std::size_t count = fuse(Net::layers, true, nodes, false);
    std::vector<std::string_view> folded;
    for (std::size_t i = 0; i < count; ++i) {
        if (nodes[i].folded_norm != no_layer) folded.push_back(Net::layers[nodes[i].folded_norm].name);
    }
    CHECK(folded == std::vector<std::string_view>{"norm1", "norm2", "norm4"});
    CHECK(nodes[0].layers == 3);
    CHECK(nodes[0].activation == Activation::relu);
    for (const bool fusion : {true, false}) {
        const std::size_t all = fuse(Net::layers, fusion, nodes, fusion);
        for (std::size_t i = 0; i < all; ++i) CHECK(nodes[i].folded_norm == no_layer);
    }
}

TEST_CASE("the folded network computes what the plain one does") {
    const std::vector<float> parameters = random(Net::parameter_elements, 1),
                             running = running_statistics_of_a_training();
    const std::vector<float> batch = random(4 * Net::input_shape.size(), 3);
    const std::vector<float> folded = run<Net>(parameters, running, batch),
                             plain = run<Unfused<Net>>(parameters, running, batch);
    CHECK(tutorial::difference(folded, plain) < 1e-6);
    std::vector<float> other = running;
    for (float& value : other) value *= 2;
    CHECK(tutorial::difference(run<Net>(parameters, other, batch), plain) > 1e-2);
}

TEST_CASE("a plan with a folded normalisation is not prepared without running statistics") {
    HostContext context(0, {.threads = 1});
    auto plan = Plan<Host>::make<Net>(context, {.batch = 1, .training = false});
    HostArena arena(plan.bytes().total(), "test");
    plan.bind(arena.data());
    const std::vector<float> parameters = random(Net::parameter_elements, 1);
    CHECK(message_of<InvalidArgument>([&] { plan.prepare(context, parameters.data()); }) ==
          "outside training the network reads running statistics (norm1.running_mean), and `prepare` was given none");
}
