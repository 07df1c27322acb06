// SPDX-License-Identifier: Apache-2.0
//
// Output: networks with several ends, whose gradients come from outside; what they compute, forward and backward,
// against an oracle in double.
#include "../test.hpp"

#include "../devices.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

using Ends = std::vector<std::size_t>;

/// Two heads on a body; nothing but the outside reads the first.
template <class A>
struct Heads : Sequential<Input<3, 2, 3>, Conv2d<4, 1>, A, Keep<"body">, Flatten, Linear<5>, Output<"kind">,
                          From<"body">, Conv2d<2, 1>, A, Flatten, Linear<4>, Output<"box">> {
    static Ends compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t body = act(o.dense(x)), kind = o.dense(o.flat(body, 24));
        return {kind, o.dense(o.flat(act(o.dense(body)), 12))};
    }
};

/// Ends in the middle that the list goes on with, that are read by name, that are ends twice, and that views follow; the
/// last one has no name.
template <class A>
struct Auxiliary : Sequential<Input<5>, Linear<6>, A, Output<"early">, Linear<6>, AddFrom<"early">, A, Output<"twice">,
                              Output<"again">, Residual<Projection<Linear<6>, Output<"side">>, Linear<6>, A>,
                              AddFrom<"side">, ConcatWith<"twice">, Linear<3>> {
    static Ends compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const auto end = [&](std::size_t v) { return o.flat(v, o.at(v).width); };
        const std::size_t early = act(o.dense(x)), twice = act(o.sum(o.dense(early), early));
        const std::size_t block = act(o.dense(twice)), side = o.dense(twice);
        const std::size_t y = o.concatenation(o.sum(o.sum(block, side), side), twice);
        return {end(early), end(twice), end(twice), end(side), o.dense(y)};
    }
};

}  // namespace

TYPED_TEST_CASE("networks with several ends compute what the oracle does, forward and backward", D,
                DevicesAndElements) {
    all_agree<D, Heads, Auxiliary>();
    unfused_agree<D, Auxiliary>();
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("a network lists its ends in the order of the list") {
    using Two = Heads<ReLU>;
    static_assert(Two::outputs.size() == 2 && Two::outputs[0].name == "kind" && Two::outputs[0].shape == Shape{5});
    static_assert(Two::outputs[1].name == "box" && Two::outputs[1].shape == Two::output_shape);
    using Five = Auxiliary<ReLU>;
    static_assert(Five::outputs.size() == 5 && Five::outputs[4].name.empty() && Five::outputs[3].name == "side");
    static_assert(Five::outputs[4].shape == Shape{3} && Five::outputs[2].layer == 7);
    using One = Sequential<Input<4>, Linear<3>>;
    static_assert(One::outputs.size() == 1 && One::outputs[0].name.empty() && One::outputs[0].layer == 0);
    static_assert(Sequential<Input<4>, Linear<3>, Output<"end">>::outputs.size() == 1);
}

TEST_CASE("an end at the end of the list costs no memory, and one that nothing else reads keeps only its value") {
    using Plain = Sequential<Input<4, 4, 8>, Conv2d<8, 3>, ReLU, Flatten, Linear<4>>;
    using Named = Sequential<Input<4, 4, 8>, Conv2d<8, 3>, ReLU, Flatten, Linear<4>, Output<"end">>;
    static_assert(activation_bytes<Plain>(5) == activation_bytes<Named>(5));
    static_assert(activation_bytes<Plain>(5, false) == activation_bytes<Named>(5, false));
    HostContext context(0, {.threads = 1});
    auto plan = Plan<Host>::make<Named>(context, {.batch = 5});
    for (const NodeInfo& node : plan.nodes()) CHECK((!node.is_output || !node.runs_backward()));
}

TEST_CASE("the values of all ends are there after a pass outside training") {
    using Net = Auxiliary<Sigmoid>;
    HostContext context(0, {.threads = 2});
    reference::Random random(3);
    const reference::Floats parameters = random.normal(Net::parameter_elements, 0.5), samples = random.normal(4 * 5);
    Oracle oracle(Net::layers, parameters);
    const Ends ends = Net::compute(oracle, oracle.input(samples, 5));
    auto plan = Plan<Host>::make<Net>(context, {.batch = 4, .training = false});
    operation_run::Guarded<Host> arena(context, plan.bytes().total());
    plan.bind(arena.bytes());
    plan.prepare(context, parameters.data());
    plan.forward(context, samples.data(), parameters.data(), {});
    for (std::size_t k = 0; k < ends.size(); ++k) {
        const std::span values(plan.output(k), oracle.at(ends[k]).x.size());
        CHECK(reference::distance(values, oracle.at(ends[k]).x) < 2e-5);
    }
    CHECK(plan.bytes().activations == activation_bytes<Net>(4, false));
}

#endif
