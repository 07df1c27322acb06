// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/column_input.hpp
//
// FromInput: networks that read several columns of the batch; what they compute, forward and backward, against an oracle in
// double, and what backward leaves out.
#include "../test.hpp"

#include "../devices.hpp"
#include "../throws_with.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

using Ends = std::vector<std::size_t>;

/// Each input has layers of its own before the sum; a column is joined without any; one that has the extents of the sum.
template <class A>
struct Joined : Sequential<Input<5>, Linear<6>, A, Keep<"body">, FromInput<"age", 4>, Linear<6>, A, AddFrom<"body">,
                           Keep<"both">, FromInput<"place", 3>, ConcatWith<"both">, Linear<7>, A, Keep<"wide">,
                           FromInput<"shift", 7>, AddFrom<"wide">, A, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t body = act(o.dense(x)), age = act(o.dense(o.column("age")));
        const std::size_t wide = act(o.dense(o.concatenation(o.column("place"), o.sum(age, body))));
        return o.dense(act(o.sum(o.column("shift"), wide)));
    }
};

/// A column with two readers, and with layers that have no parameters; views of a column; the Input read late.
template <class A>
struct Images
    : Sequential<Input<2, 3, 3>, Keep<"image">, FromInput<"mask", 2, 3, 1>, Keep<"mask">, A, ConcatWith<"image">,
                 Conv2d<4, 1>, A, ConcatWith<"mask">, ConcatWith<"image">, Flatten, Linear<5>, Keep<"e">,
                 Named<"grey", FromInput<"grey", 1, 2, 2>>, Flatten, A, ConcatWith<"e">, Linear<2>> {
    static std::size_t compute(Oracle& o, std::size_t image) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t mask = o.column("mask"), y = act(o.dense(o.concatenation(act(mask), image)));
        const std::size_t e = o.dense(o.flat(o.concatenation(o.concatenation(y, mask), image), 2 * 3 * 8));
        return o.dense(o.concatenation(act(o.flat(o.column("grey"), 4)), e));
    }
};

/// Ends whose values come from a column alone, of which one is the last.
template <class A>
struct Ended : Sequential<Input<4>, Linear<3>, Keep<"a">, FromInput<"t", 3>, A, Output<"copy">, AddFrom<"a">, Linear<2>,
                          Output<"sum">, FromInput<"u", 6>, A> {
    static Ends compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t a = o.dense(x), t = act(o.column("t"));
        return {o.flat(t, 3), o.dense(o.sum(t, a)), act(o.column("u"))};
    }
};

}  // namespace

TYPED_TEST_CASE("networks with several inputs compute what the oracle does, forward and backward", D,
                DevicesAndElements) {
    all_agree<D, Joined, Images, Ended>(8e-2, {true, false});
    unfused_agree<D, Joined>(false);
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("a network lists the columns that it reads in the order of the list") {
    const auto required = required_inputs(Images<ReLU>::layers);
    REQUIRE(required.size() == 3);
    CHECK(required[0].column == ColumnSpec{"input", ElementType::float32, {2, 3, 3}});
    CHECK(required[1].column == ColumnSpec{"mask", ElementType::float32, {2, 3, 1}});
    CHECK(required[2].column == ColumnSpec{"grey", ElementType::float32, {1, 2, 2}});
    using One = Sequential<Input<4>, Linear<3>>;
    static_assert(count_inputs(One::layers) == 1 && count_inputs(Images<ReLU>::layers) == 3);
    CHECK(required_inputs(One::layers).size() == 1);
}

TEST_CASE("backward computes no gradient of a column, nor of what is computed from columns alone") {
    using Net = Images<Sigmoid>;
    HostContext context(0, {.threads = 1});
    const auto plan = Plan<Host>::make<Net>(context, {.batch = 2});
    const std::size_t lowest = lowest_node(plan.nodes(), false);
    std::size_t of_columns = 0;
    for (std::size_t i = 0; i < plan.nodes().size(); ++i) {
        const NodeInfo& node = plan.nodes()[i];
        const std::string type(Net::layers[node.layer].type);
        CAPTURE(type);
        const bool from_grey = i > 0 && node.untrained && node.output.size() == 4;
        of_columns += from_grey ? 1 : 0;
        if (from_grey) CHECK(!needs_gradient(plan.nodes(), i + 1, lowest, false));
        if (from_grey) CHECK(!has_backward(plan.nodes(), i, lowest, false));
        if (from_grey) CHECK(needs_gradient(plan.nodes(), i + 1, lowest, true));
        if (node.has_parameters) CHECK(!node.untrained);
    }
    CHECK(of_columns == 3);  // the column, its Flatten and the Sigmoid
}

TEST_CASE("networks with several inputs pass the check of gradients") {
    for (const std::int64_t batch : {1, 4}) {
        const auto right = [](const GradientCheck& check) {
            INFO(check.report());
            CHECK(static_cast<bool>(check));
        };
        right(check_gradients<Joined<Sigmoid>, CrossEntropy<3>, Host>({.batch = batch}));
        right(check_gradients<Images<Sigmoid>, CrossEntropy<2>, Host>({.batch = batch}));
    }
}

TEST_CASE("a pass of a network with several inputs asks for its columns") {
    using Net = Sequential<Input<2>, Linear<3>, Keep<"a">, FromInput<"age", 3>, AddFrom<"a">>;
    HostContext context(0, {.threads = 1});
    auto plan = Plan<Host>::make<Net>(context, {.batch = 1, .training = false});
    operation_run::Guarded<Host> arena(context, plan.bytes().total());
    plan.bind(arena.bytes());
    const std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements), 1.0F);
    plan.prepare(context, parameters.data());
    const std::array<float, 3> x{1, 2, 3};
    const std::array<std::int32_t, 3> ids{};
    const char* const wanted = "a pass of this network reads the column age of float32, which its batch lacks";
    const auto error_of = [&](const PlanInputs& inputs) {
        return message_of<InvalidArgument>([&] { plan.forward(context, inputs, parameters.data(), {}); });
    };
    CHECK(error_of(x.data()) == wanted);
    const Column input{{"input", ElementType::float32, {2}}, x.data()};
    CHECK(error_of(BatchView{1, {input}}) == wanted);
    CHECK(error_of(BatchView{1, {input, {{"age", ElementType::int32, {3}}, ids.data()}}}) == wanted);
    CHECK(error_of(BatchView{1, {input, {{"age", ElementType::float32, {3}}, x.data()}}}) == "(no exception)");
    CHECK(plan.output(0)[2] == doctest::Approx(1 + 2 + 1 + 3));
}

#endif
