// SPDX-License-Identifier: Apache-2.0
//
// Concat and Add: what networks with blocks of branches compute, forward and backward, against an oracle in double;
// their layers, their names and their memory.
#include "../test.hpp"

#include "../devices.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

/// Four branches, of which one is the input and one a single layer; then the input first, and twice.
template <class A>
struct Concats : Sequential<Input<3, 5, 3>, Conv2d<4, 1>, A,
                            Named<"mixed", Concat<Named<"one", Branch<Named<"conv", Conv2d<3, 1>>, A>>,
                                                  Branch<Conv2d<2, 1>, A, Conv2d<5, 1>, A>, Identity, Conv2d<1, 1>>>,
                            Concat<Identity, Branch<Conv2d<2, 1>, A>>, Concat<Identity, Identity, Conv2d<2, 1>>,
                            Flatten, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t x = act(o.dense(image)), one = act(o.dense(x)), two = act(o.dense(act(o.dense(x)))),
                          four = o.dense(x);
        const std::size_t mixed = o.concatenation(o.concatenation(o.concatenation(one, two), x), four);
        const std::size_t y = o.concatenation(mixed, act(o.dense(mixed)));
        return o.dense(o.flat(o.concatenation(o.concatenation(y, y), o.dense(y)), 3 * 5 * 32));
    }
};

/// Sums of two, three and four branches; the first is a residual block whose input comes first.
template <class A>
struct Sums : Sequential<Input<5>, Add<Identity, Branch<Linear<5>, A>>, Add<Linear<6>, Branch<Linear<6>, A>, Linear<6>>,
                         A, Add<Identity, Identity, Branch<A, Linear<6>>, Identity>, A, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t a = o.sum(x, act(o.dense(x)));
        const std::size_t b1 = o.dense(a), b2 = act(o.dense(a)), b3 = o.dense(a);
        const std::size_t b = act(o.sum(o.sum(b1, b2), b3)), c = o.dense(act(b));
        return o.dense(act(o.sum(o.sum(o.sum(b, b), c), b)));
    }
};

/// Blocks in blocks, first and last in their branch, and named values inside, from outside and across branches.
template <class A>
struct Mixed
    : Sequential<
          Input<4>, Linear<4>, Keep<"in">,
          Named<"block", Concat<Branch<Add<Identity, Linear<4>>, A, Keep<"end">>, Branch<Keep<"start">, Linear<6>>,
                                Branch<Residual<Projection<Linear<4>>, Linear<4>, A>, AddFrom<"in">,
                                       ConcatWith<"start">, ConcatWith<"end">>>>,
          Linear<4>, AddFrom<"in">, AddFrom<"block.end">, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t in = o.dense(x), end = act(o.sum(in, o.dense(in))), two = o.dense(in);
        const std::size_t block = act(o.dense(in)), sum = o.sum(o.sum(block, o.dense(in)), in);
        const std::size_t three = o.concatenation(o.concatenation(sum, in), end);
        const std::size_t y = o.dense(o.concatenation(o.concatenation(end, two), three));
        return o.dense(o.sum(o.sum(y, in), end));
    }
};

}  // namespace

TYPED_TEST_CASE("networks with blocks of branches compute what the oracle does, forward and backward", D,
                DevicesAndElements) {
    all_agree<D, Concats, Sums, Mixed>();
    unfused_agree<D, Sums, Mixed>();
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("a block of branches is layers of the flat list") {
    std::string rows;
    for (const LayerInfo& layer : Concats<ReLU>::layers) {
        rows += text(layer.description, layer.name.empty() ? "" : " ", layer.name, " ", layer.reads);
        if (layer.also_reads != no_value) rows += text(" ", layer.also_reads);
        rows += "\n";
    }
    CHECK(
        rows ==
        "Conv2d 4, 1 x 1 0\nReLU 1\nFork 2\nConv2d 3, 1 x 1 mixed.one.conv 3\nReLU 4\nBranch 3\nConv2d 2, 1 x 1 6\n"
        "ReLU 7\nConv2d 5, 1 x 1 8\nReLU 9\nBranch 3\nConv2d 1, 1 x 1 11\nConcat 5 10\nConcat 13 3\nConcat mixed 14 12\n"
        "Fork 15\nConv2d 2, 1 x 1 16\nReLU 17\nConcat 16 18\nFork 19\nBranch 20\nConv2d 2, 1 x 1 21\nConcat 20 20\n"
        "Concat 23 22\nFlatten 24\nLinear 3 25\n");
    const std::string table = summary<Concats<ReLU>>(2);
    for (const char* part : {"mixed.one.conv", "Branch", "Concat"}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
}

TEST_CASE("an Add of a block and a shortcut is a Residual") {
    using Block = Sequential<Input<4, 4, 8>, Conv2d<8, 3>, Residual<Projection<Conv2d<8, 1>>, Conv2d<8, 3>, ReLU>, ReLU,
                             Residual<Identity, Conv2d<8, 3>>>;
    using Sum = Sequential<Input<4, 4, 8>, Conv2d<8, 3>, Add<Branch<Conv2d<8, 3>, ReLU>, Conv2d<8, 1>>, ReLU,
                           Add<Conv2d<8, 3>, Identity>>;
    static_assert(Block::layer_count == Sum::layer_count && activation_bytes<Block>(5) == activation_bytes<Sum>(5));
    for (std::size_t i = 0; i < Block::layer_count; ++i) {
        CAPTURE(i);
        CHECK(Block::layers[i].kind == Sum::layers[i].kind);
        CHECK(Block::layers[i].reads == Sum::layers[i].reads);
        CHECK(Block::layers[i].also_reads == Sum::layers[i].also_reads);
    }
}

TEST_CASE("gradients of networks with blocks of branches are those of differences") {
    const auto right = [](const GradientCheck& check) {
        INFO(check.report());
        CHECK(static_cast<bool>(check));
    };
    right(check_gradients<Concats<Sigmoid>, CrossEntropy<3>, Host>({.batch = 3, .tolerance = 0.05}));
    right(check_gradients<Sums<Sigmoid>, CrossEntropy<3>, Host>({.batch = 1}));
    right(check_gradients<Mixed<Sigmoid>, CrossEntropy<3>, Host>({.batch = 2}));
}

namespace {

template <std::size_t i>
inline constexpr FixedString<5> value_of = [] {
    FixedString<5> name{"s000"};
    for (std::size_t digit = 3, rest = i; digit > 0; --digit, rest /= 10)
        name.characters[digit] = static_cast<char>('0' + rest % 10);
    return name;
}();

/// Four modules: a value, and sums with it and with the one before.
template <std::size_t i>
using Crossed = Branch<Keep<value_of<i>>, Linear<8>, AddFrom<value_of<i>>, AddFrom<value_of<i == 0 ? 0 : i - 1>>>;

template <class... Modules>
struct Joined;
template <class... All>
struct Joined<Sequential<All...>> {
    using Type = Sequential<All...>;
};
template <class... All, class... Modules, class... Others>
struct Joined<Sequential<All...>, Branch<Modules...>, Others...> : Joined<Sequential<All..., Modules...>, Others...> {};

template <std::size_t... I>
auto deep(std::index_sequence<I...>) -> typename Joined<Sequential<Input<8>>, Crossed<I>...>::Type;

}  // namespace

TEST_CASE("400 modules with 100 skips that cross compile within the compilers' limits") {
    using Net = decltype(deep(std::make_index_sequence<100>{}));
    static_assert(Net::layer_count == 400 && Net::output == Extents<8>{});
    static_assert(Net::layers[399].also_reads == Net::layers[392].reads + 1);
    CHECK(activation_bytes<Net>(2) > 0);
    std::vector<NodeInfo> nodes(Net::layer_count);
    nodes.resize(fuse(Net::layers, true, nodes));
    std::size_t adding = 0;
    for (const NodeInfo& node : nodes) adding += node.adds_gradient ? 1 : 0;
    CHECK(adding == 100);  // of two readers of each value the first adds, and of three of the first one two
}
#endif
