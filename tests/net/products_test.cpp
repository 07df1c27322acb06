// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/named_values.hpp, cupola/net/branches.hpp
//
// MultiplyBy and Multiply: what networks with products compute, forward and backward, against an oracle in double; their layers
// and their memory.
#include "../test.hpp"

#include <cupola/net/pipeline/cuts.hpp>
#include <cupola/net/recompute.hpp>

#include "../devices.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

/// Squeeze-and-excitation with the map as the named value, of odd extents; the map is read a third time.
template <class A>
struct Excitation
    : Sequential<Input<3, 5, 4>, Named<"conv", Conv2d<6, 1>>, A, Keep<"map">, GlobalAvgPool2d, Linear<3>, A, Linear<6>,
                 Sigmoid, MultiplyBy<"map">, Conv2d<6, 1>, AddFrom<"map">, A, Flatten, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t map = act(o.dense(image)), squeezed = act(o.dense(o.mean(map, 15)));
        const std::size_t gate = o.template activation<Sigmoid>(o.dense(squeezed));
        return o.dense(o.flat(act(o.sum(o.dense(o.product(gate, map)), map)), 15 * 6));
    }
};

/// The gate as the named value, with two readers of the product and a reader whose gradient has its own extents; the input itself
/// and a square are factors too.
template <class A>
struct Gated : Sequential<Input<4, 3, 5>, Keep<"image">, GlobalAvgPool2d, Linear<5>, Sigmoid, Keep<"gate">,
                          From<"image">, MultiplyBy<"gate">, Conv2d<5, 1>, A, Keep<"x">, MultiplyBy<"gate">,
                          MultiplyBy<"x">, MultiplyBy<"image">, Conv2d<5, 1>, Keep<"y">, MultiplyBy<"y">,
                          GlobalAvgPool2d, MultiplyBy<"gate">, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t gate = o.template activation<Sigmoid>(o.dense(o.mean(image, 12)));
        const std::size_t x = act(o.dense(o.product(image, gate)));
        const std::size_t y = o.dense(o.product(o.product(o.product(x, gate), x), image));
        return o.dense(o.product(o.mean(o.product(y, y), 12), gate));
    }
};

/// Blocks: the gate in the second branch of two and in the first of three, inside a residual block, and of vectors.
template <class A>
struct Blocks
    : Sequential<Input<3, 3, 4>, Multiply<Identity, Branch<GlobalAvgPool2d, Linear<4>, Sigmoid>>,
                 Named<"block", Residual<Identity, Conv2d<4, 1>, A,
                                         Multiply<Branch<GlobalAvgPool2d, Linear<2>, A, Linear<4>, Sigmoid>, Identity,
                                                  Branch<Conv2d<4, 1>, Sigmoid>>>>,
                 A, GlobalAvgPool2d, Named<"end", Multiply<Linear<6>, Branch<Linear<6>, Sigmoid>>>, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const auto sigmoid = [&](std::size_t v) { return o.template activation<Sigmoid>(v); };
        const std::size_t in = o.product(image, sigmoid(o.dense(o.mean(image, 9)))), x = act(o.dense(in));
        const std::size_t gate = sigmoid(o.dense(act(o.dense(o.mean(x, 9)))));
        const std::size_t y = o.mean(act(o.sum(o.product(o.product(gate, x), sigmoid(o.dense(x))), in)), 9);
        const std::size_t wide = o.dense(y);
        return o.dense(o.product(wide, sigmoid(o.dense(y))));
    }
};

/// A gate of another input, which has no gradient, of 1 x 1 x channels.
template <class A>
struct GatedByColumn : Sequential<Input<3, 4, 2>, Conv2d<3, 1>, A, Keep<"map">, FromInput<"gate", 1, 1, 3>,
                                  MultiplyBy<"map">, Flatten, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const std::size_t map = o.template activation<A>(o.dense(image));
        return o.dense(o.flat(o.product(o.column("gate"), map), 36));
    }
};

}  // namespace

TYPED_TEST_CASE("networks with products compute what the oracle does, forward and backward", D, DevicesAndElements) {
    all_agree<D, Excitation, Gated, Blocks, GatedByColumn>(8e-2, {true, false});
    unfused_agree<D, Excitation, Blocks>();
}

#ifndef CUPOLA_TEST_CUDA

static_assert(Excitation<ReLU>::layers[8].input == Shape{6} && Excitation<ReLU>::layers[8].output == Shape{3, 5, 6});
static_assert(Gated<ReLU>::layers[11].output == Shape{4, 3, 5} && Gated<ReLU>::layers[17].output == Shape{5});
static_assert(Blocks<ReLU>::layers[4].name.empty() && Blocks<ReLU>::layers[4].output == Shape{3, 3, 4});

TEST_CASE("a product is one layer of the list, whose both inputs backward reads") {
    const LayerInfo& by_name = Excitation<ReLU>::layers[8];
    CHECK(by_name.type == "MultiplyBy<map>");
    CHECK(by_name.reads == 8);
    CHECK(by_name.also_reads == 3);
    const LayerInfo& last = Blocks<ReLU>::layers[Blocks<ReLU>::layer_count - 2];
    CHECK(last.type == "Multiply");
    CHECK(last.name == "end");
    for (const LayerInfo& layer : {by_name, last}) {
        CHECK(layer.traits.backward_reads_input);
        CHECK(layer.traits.backward_reads_second_input);
        CHECK_FALSE(layer.traits.backward_reads_output);
    }
    CHECK(summary<Blocks<ReLU>>(2).find("Multiply") != std::string::npos);
}

TEST_CASE("gradients of networks with products are those of differences, with frozen layers below them too") {
    const auto right = [](const GradientCheck& check) {
        INFO(check.report());
        CHECK(static_cast<bool>(check));
    };
    right(check_gradients<Excitation<Sigmoid>, CrossEntropy<3>, Host>({.batch = 3, .tolerance = 0.06}));
    right(check_gradients<Gated<Sigmoid>, CrossEntropy<3>, Host>({.batch = 1}));
    right(check_gradients<Blocks<Sigmoid>, CrossEntropy<3>, Host>({.batch = 2, .tolerance = 0.06}));
    right(check_gradients<Frozen<Excitation<Sigmoid>, "conv.*">, CrossEntropy<3>, Host>({.batch = 2}));
}

TEST_CASE("tensors of a network with products never share bytes while both are alive") {
    for (const bool fusion : {false, true}) {
        for (const bool training : {false, true}) {
            for (const bool input_gradient : {false, true}) {
                check_memory(Excitation<ReLU>::layers, fusion, training, input_gradient);
                check_memory(Gated<ReLU>::layers, fusion, training, input_gradient);
                check_memory(Blocks<ReLU>::layers, fusion, training, input_gradient);
            }
        }
    }
}

TEST_CASE("a block with a product that is computed again has the bits of the network without it") {
    struct Again : Recompute<Blocks<Sigmoid>, "block"> {};
    static_assert(recomputation<Again>().operations > 5);
    CHECK(reference::same_bits(gradients_of<Again>(4), gradients_of<Blocks<Sigmoid>>(4)));
    CHECK(reference::same_bits(gradients_of<Blocks<ReLU>>(3), gradients_of<Unfused<Blocks<ReLU>>>(3)));
}

TEST_CASE("no cut lies between a value and the product that reads it") {
    const FixedArray<CutPlace> places = find_cuts(Excitation<Sigmoid>::layers, true);
    for (std::size_t i = 4; i <= 8; ++i) {
        CHECK(places[i].obstacle == CutObstacle::value);
        CHECK(places[i].before == 3);
    }
    CHECK(find_cuts(Blocks<Sigmoid>::layers, true)[5].obstacle == CutObstacle::none);
}

#endif
