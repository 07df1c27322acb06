// SPDX-License-Identifier: Apache-2.0
//
// Keep, AddFrom, ConcatWith and From: what networks with crossing branches compute, forward and backward, against an
// oracle in double; their rows, their nodes and their memory.
#include "../test.hpp"

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"
#include "graph_run.hpp"

using namespace graph_run;
using operation_run::Guarded;
using reference::Floats, reference::same_bits;

namespace {

/// Values with two and four readers by name, whose branches cross. The last reader is a sum that takes in a ReLU.
template <class A>
struct Crossing : Sequential<Input<5>, Linear<6>, A, Keep<"a">, Linear<6>, A, Keep<"b">, Linear<6>, AddFrom<"a">, A,
                             Keep<"c">, Linear<6>, AddFrom<"b">, ConcatWith<"a">, Linear<6>, AddFrom<"a">, A,
                             AddFrom<"c">, Named<"sum", AddFrom<"a">>, A, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t a = act(o.dense(x)), b = act(o.dense(a)), c = act(o.sum(o.dense(b), a));
        const std::size_t d = o.concatenation(o.sum(o.dense(c), b), a);
        return o.dense(act(o.sum(o.sum(act(o.sum(o.dense(d), a)), c), a)));
    }
};

/// Concatenations of numbers of channels that fit no vector, of the batch itself too; one value is read by its name in
/// the module that follows it.
template <class A>
struct Slices : Sequential<Input<3, 5, 3>, Keep<"image">, Conv2d<4, 1>, A, Keep<"x">, ConcatWith<"x">, Conv2d<7, 1>,
                           ConcatWith<"x">, Keep<"y">, Conv2d<5, 1>, ConcatWith<"image">, ConcatWith<"y">, A,
                           ConcatWith<"x">, Flatten, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t x = act(o.dense(image)), y = o.concatenation(o.dense(o.concatenation(x, x)), x);
        const std::size_t z = act(o.concatenation(o.concatenation(o.dense(y), image), y));
        return o.dense(o.flat(o.concatenation(z, x), 3 * 5 * 23));
    }
};
static_assert(Slices<ReLU>::layers[11].output == Shape{3, 5, 19} && Slices<ReLU>::layers[12].output.channels() == 23);

/// Three branches from one value, of which the second begins with another branch's end; values that only names read.
template <class A>
struct Branches
    : Sequential<Input<4>, Linear<5>, Keep<"in">, Linear<6>, A, Keep<"one">, From<"in">, Linear<2>, A, Keep<"two">,
                 From<"one">, Linear<6>, Keep<"three">, From<"in">, Keep<"again">, Linear<6>, AddFrom<"one">,
                 AddFrom<"three">, ConcatWith<"two">, ConcatWith<"one">, ConcatWith<"again">, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t in = o.dense(x), one = act(o.dense(in)), two = act(o.dense(in)), three = o.dense(one);
        const std::size_t sum = o.sum(o.sum(o.dense(in), one), three);
        return o.dense(o.concatenation(o.concatenation(o.concatenation(sum, two), one), in));
    }
};

/// Names inside a residual block and from outside, at the ends of its block and of its shortcut.
template <class A>
struct InBlocks
    : Sequential<Input<4>, Linear<4>, Keep<"s">,
                 Named<"block", Residual<Projection<AddFrom<"s">, Linear<6>, Keep<"way">>, Linear<6>, A, Keep<"end">>>,
                 AddFrom<"block.way">, A, Residual<Identity, Keep<"t">, Linear<6>, AddFrom<"t">>, AddFrom<"block.end">,
                 Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t s = o.dense(x), end = act(o.dense(s)), way = o.dense(o.sum(s, s));
        const std::size_t t = act(o.sum(o.sum(end, way), way));
        return o.dense(o.sum(o.sum(o.sum(o.dense(t), t), t), end));
    }
};

}  // namespace

TYPED_TEST_CASE("networks with named values compute what the oracle does, forward and backward", D,
                DevicesAndElements) {
    all_agree<D, Crossing, Slices, Branches, InBlocks>(4e-2);
    unfused_agree<D, Crossing, InBlocks>();
}

#ifndef CUPOLA_TEST_CUDA

namespace {

/// Layers that fuse on both sides of kept values.
struct Images
    : Sequential<Input<7, 6, 3>, Conv2d<4, 3>, Keep<"before">, ReLU, Keep<"a">, MaxPool2d<2>, Conv2d<4, 3, no_bias>,
                 BatchNorm2d<>, ReLU, Keep<"b">, From<"before">, MaxPool2d<2>, AddFrom<"b">, ReLU, Keep<"c">, Flatten,
                 Linear<6>, Keep<"e">, From<"c">, Conv2d<2, 1>, ConcatWith<"b">, Flatten, Linear<6>, AddFrom<"e">, ReLU,
                 Linear<5>, Keep<"f">, From<"a">, Flatten, Linear<5>, AddFrom<"f">> {};

/// The rows, in one line per layer.
std::string rows(std::span<const LayerInfo> layers) {
    std::string result;
    for (const LayerInfo& layer : layers) {
        result += text(layer.type, " ", layer.reads);
        if (layer.also_reads != no_value) result += text(" ", layer.also_reads);
        result += "\n";
    }
    return result;
}

}  // namespace

TEST_CASE("each module is one layer, which reads the named value") {
    CHECK(rows(Branches<ReLU>::layers) ==
          "Linear<5> 0\nKeep<in> 1\nLinear<6> 2\nReLU 3\nKeep<one> 4\nFrom<in> 2\nLinear<2> 6\nReLU 7\nKeep<two> 8\n"
          "From<one> 5\nLinear<6> 10\nKeep<three> 11\nFrom<in> 2\nKeep<again> 13\nLinear<6> 14\nAddFrom<one> 15 5\n"
          "AddFrom<three> 16 12\nConcatWith<two> 17 9\nConcatWith<one> 18 5\nConcatWith<again> 19 14\nLinear<3> 20\n");
    CHECK(rows(InBlocks<ReLU>::layers) ==
          "Linear<4> 0\nKeep<s> 1\nFork 2\nLinear<6> 3\nReLU 4\nKeep<end> 5\nAddFrom<s> 3 2\nLinear<6> 7\nKeep<way> 8\n"
          "Add 6 9\nAddFrom<block.way> 10 9\nReLU 11\nFork 12\nKeep<t> 13\nLinear<6> 14\nAddFrom<t> 15 14\nAdd 16 13\n"
          "AddFrom<block.end> 17 6\nLinear<3> 18\n");
    CHECK(InBlocks<ReLU>::layers[5].name == "block.end");
    CHECK(Crossing<ReLU>::layers[17].name == "sum");
    const std::string table = summary<Crossing<ReLU>>(2);
    for (const char* part : {"Keep<a>", "AddFrom<b>", "ConcatWith<a>", "sum"}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
}

TEST_CASE("no fusion goes past a kept value, and a sum with a named value takes in the ReLU that follows") {
    std::vector<NodeInfo> nodes(Images::layer_count);
    nodes.resize(fuse(Images::layers, true, nodes));
    std::string fused;
    for (const NodeInfo& node : nodes) {
        if (node.layers > 1) fused += text(Images::layers[node.layer].type, " ");
        CHECK_FALSE(node.applies_relu_mask_of_previous);
        if (Images::layers[node.layer].kind == LayerKind::fork) CHECK(node.layers == 1);
    }
    CHECK(fused == "BatchNorm2d<> AddFrom<b> AddFrom<e> ");
}

TEST_CASE("fusion changes no bit of a network with named values, and its gradients are right") {
    CHECK(same_bits(gradients_of<Images>(5), gradients_of<Unfused<Images>>(5)));
    CHECK(same_bits(gradients_of<Crossing<ReLU>>(1), gradients_of<Unfused<Crossing<ReLU>>>(1)));
    CHECK(same_bits(gradients_of<InBlocks<ReLU>>(2), gradients_of<Unfused<InBlocks<ReLU>>>(2)));
    const auto right = [](const GradientCheck& check) {
        INFO(check.report());
        CHECK(static_cast<bool>(check));
    };
    right(check_gradients<Images, CrossEntropy<5>, Host>({.batch = 4, .tolerance = 0.05}));
    right(check_gradients<Crossing<Sigmoid>, CrossEntropy<3>, Host>({.batch = 1}));
    right(check_gradients<Slices<Sigmoid>, CrossEntropy<3>, Host>({.batch = 3}));
    right(check_gradients<Branches<Sigmoid>, CrossEntropy<3>, Host>({.batch = 2}));
    right(check_gradients<InBlocks<Sigmoid>, CrossEntropy<3>, Host>({.batch = 2}));
}

TEST_CASE("tensors of a network with named values never share bytes while both are alive") {
    for (const bool fusion : {false, true}) {
        for (const bool training : {false, true}) {
            for (const bool input_gradient : {false, true}) {
                check_memory(Images::layers, fusion, training, input_gradient);
                check_memory(Crossing<ReLU>::layers, fusion, training, input_gradient);
                check_memory(Branches<ReLU>::layers, fusion, training, input_gradient);
                check_memory(InBlocks<ReLU>::layers, fusion, training, input_gradient);
            }
        }
    }
}

TEST_CASE("a sum around layers by name needs the memory of a residual block") {
    struct Block
        : Sequential<Input<4, 4, 8>, Conv2d<8, 3>, Residual<Identity, Conv2d<8, 3>, ReLU>, ReLU, Flatten, Linear<4>> {};
    struct ByName : Sequential<Input<4, 4, 8>, Conv2d<8, 3>, Keep<"in">, Conv2d<8, 3>, ReLU, AddFrom<"in">, ReLU,
                               Flatten, Linear<4>> {};
    static_assert(activation_bytes<Block>(5) == activation_bytes<ByName>(5));
    static_assert(activation_bytes<Block>(5, false) == activation_bytes<ByName>(5, false));
    CHECK(same_bits(gradients_of<Block>(3), gradients_of<ByName>(3)));
}

#endif
