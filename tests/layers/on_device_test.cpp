// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/offloaded.hpp
//
// Layers that run on another device than their network: the same bits, and the copies that the summary shows.
#include <cupola/layers/on_device.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/host_operations.hpp>
#include <cupola/layers/relu6.hpp>
#include <cupola/net/summary.hpp>

namespace {

/// A device whose memory holds the complement of each byte: what reads it without a copy reads something else.
struct Remote {
    static constexpr std::string_view name = "Remote";
    using Options = HostOptions;
    using Context = HostContext;
    using Arena = HostArena;
    static inline std::size_t copied = 0;

    static std::size_t available_memory() { return Host::available_memory(); }
    static void copy_from_host(Context&, std::byte* to, const std::byte* from, std::size_t bytes) {
        flip(to, from, bytes);
    }
    static void copy_to_host(Context&, std::byte* to, const std::byte* from, std::size_t bytes) {
        flip(to, from, bytes);
    }

private:
    static void flip(std::byte* to, const std::byte* from, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) to[i] = ~from[i];
        copied += bytes;
    }
};
static_assert(Device<Remote> && InHostMemory<Host> && !InHostMemory<Remote>);

/// A placed layer computes nothing of the layer after it.
template <class Activation>
struct Placed : Sequential<Input<4, 4, 3>, OnDevice<Remote, Conv2d<8, 3>>, Activation> {};
template <class Net>
constexpr std::size_t nodes_of() {
    std::array<NodeInfo, Net::layer_count> nodes{};
    return fuse(Net::layers, true, nodes);
}
static_assert(nodes_of<Placed<ReLU>>() == 2 && nodes_of<Placed<ReLU6>>() == 2);

std::vector<float> numbers(std::size_t count, float start) {
    std::vector<float> result(count);
    for (std::size_t i = 0; i < count; ++i)
        result[i] = start + 0.25F * static_cast<float>(i % 17) - 0.1F * static_cast<float>(i % 5);
    return result;
}

/// In the memory of `Remote`, and back.
std::vector<float> flipped(const std::vector<float>& values) {
    std::vector<float> result(values.size());
    HostContext context(0, {});
    Remote::copy_from_host(context, reinterpret_cast<std::byte*>(result.data()),
                           reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
    return result;
}

struct Results {
    std::vector<float> output, input_gradient, weight_gradient;
    bool operator==(const Results&) const = default;
};

constexpr std::int64_t batch = 3;
constexpr Shape shape{5, 4, 6};

/// Forward and backward of layer `L` on device `D`, whose memory `load` and `store` translate.
template <class L, class D, class Translate>
Results run(bool accumulate, Translate translate) {
    HostContext context(0, {});
    const auto team = context.team();
    const Shape out = L::output(shape).shape;
    auto op = operation_of<L>(BuildContext<D>{.context = context, .batch = batch, .input = shape, .output = out});
    const Parameters named = parameters_of<L>(shape);
    const std::size_t weights = named.count == 0 ? 0 : static_cast<std::size_t>(named.list[0].shape.size());
    std::vector<float> input = translate(numbers(static_cast<std::size_t>(batch * shape.size()), -1)),
                       output_gradient = translate(numbers(static_cast<std::size_t>(batch * out.size()), -2)),
                       parameters = translate(numbers(weights, 0.5F)), bias = translate(numbers(8, 0.1F));
    Results r{translate(numbers(static_cast<std::size_t>(batch * out.size()), 9)), translate(numbers(input.size(), 9)),
              translate(numbers(weights, 1))};
    std::vector<float> bias_gradient = translate(numbers(8, 1));
    const MemoryNeeds needs = memory_needs(op);
    HostArena packed(needs.packed + 64, "a test"), saved(needs.saved + 64, "a test"),
        scratch(needs.scratch + 64, "a test");
    BackwardArgs<D> args{{.context = context,
                          .input = input.data(),
                          .output = r.output.data(),
                          .packed = packed.data(),
                          .saved = saved.data(),
                          .scratch = scratch.data()}};
    args.output_gradient = output_gradient.data();
    args.input_gradient = r.input_gradient.data();
    args.accumulate = accumulate;
    if (weights > 0) {
        args.parameters = {parameters.data(), bias.data()};
        args.parameter_gradients = {r.weight_gradient.data(), bias_gradient.data()};
    }
    if constexpr (requires { op.prepare(args); }) op.prepare(args);
    op.forward(args);
    op.backward(args);
    return {translate(r.output), translate(r.input_gradient), translate(r.weight_gradient)};
}

}  // namespace

TEST_CASE("a layer that runs on another device has the same bits as on the network's device, forward and backward") {
    const auto as_it_is = [](const std::vector<float>& values) { return values; };
    const auto other = [](const std::vector<float>& values) { return flipped(values); };
    using Norm = LocalResponseNorm<2>;
    CHECK(run<impl::OffloadedLayer<Host, Norm>, Remote>(false, other) == run<Norm, Host>(false, as_it_is));
    using Conv = Conv2d<8, 3>;
    for (const bool accumulate : {false, true}) {
        CHECK(run<impl::OffloadedLayer<Host, Conv>, Remote>(accumulate, other) ==
              run<Conv, Host>(accumulate, as_it_is));
    }
}

TEST_CASE("input and output are copied in forward, their gradients in backward") {
    const auto other = [](const std::vector<float>& values) { return flipped(values); };
    Remote::copied = 0;
    (void)run<impl::OffloadedLayer<Host, LocalResponseNorm<2>>, Remote>(false, other);
    const std::size_t tensor = static_cast<std::size_t>(batch * shape.size()) * sizeof(float);
    // The test itself translates four tensors before (and the empty parameters and 2 x 8 floats of bias) and two after.
    CHECK(Remote::copied == 4 * tensor + (4 + 2) * tensor + 2 * 8 * sizeof(float));
}

namespace {

struct Offloaded : Sequential<Input<8, 8, 4>, Named<"conv", Conv2d<4, 3>>, ReLU,
                              OnDevice<Host, Named<"norm", LocalResponseNorm<2>>, MaxPool2d<2, 2>>, Flatten,
                              Named<"fc", Linear<3>>> {};
struct Home : Sequential<Input<8, 8, 4>, Named<"conv", Conv2d<4, 3>>, ReLU, Named<"norm", LocalResponseNorm<2>>,
                         MaxPool2d<2, 2>, Flatten, Named<"fc", Linear<3>>> {};
static_assert(Offloaded::output == Extents<3>{} && Offloaded::parameter_count == Home::parameter_count);
/// With a view among the layers that are placed.
struct OffloadedEnd : Sequential<Input<8, 8, 4>, Named<"conv", Conv2d<4, 3>>, ReLU, Named<"norm", LocalResponseNorm<2>>,
                                 OnDevice<Host, MaxPool2d<2, 2>, Flatten, Named<"fc", Linear<3>>>> {};

}  // namespace

TEST_CASE("a network with layers placed on its own device trains with the same bits") {
    const std::vector<float> images = numbers(4 * 8 * 8 * 4, 0);
    const std::vector<std::int32_t> labels{0, 1, 2, 1};
    const auto trained = [&]<class Net>(Net) {
        DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.batch_size = 4, .seed = 3});
        for (int step = 0; step < 3; ++step) {
            training.step([&](std::int64_t, int, HostContext&) {
                return BatchView{images.data(), labels.data(), 4, Net::input_shape};
            });
        }
        return training.parameters();
    };
    CHECK(trained(Offloaded{}) == trained(Home{}));
    CHECK(trained(OffloadedEnd{}) == trained(Home{}));
}

TEST_CASE("the summary shows the device of a layer and the copies that it needs") {
    const std::string table = summary<Offloaded>(16);
    CHECK(table.find("norm runs on Host: a network on another device copies 32.8 kB in forward") != std::string::npos);
    CHECK(summary<Home>(16).find("runs on") == std::string::npos);
}
