// SPDX-License-Identifier: Apache-2.0
//
// Networks that read ids: at the Input and at a FromInput, with several readers, in branches, frozen and tied; what they
// compute, forward and backward, against an oracle in double.
#include "../test.hpp"

#include "../devices.hpp"
#include "../throws_with.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

/// Ids at the Input, and another column of ids beside one of floats.
struct Words : Sequential<Input<4>, Embedding<11, 6>, Flatten, Sigmoid, Keep<"words">, FromInput<"country", 1>,
                          Embedding<5, 3>, Flatten, ConcatWith<"words">, Keep<"ids">, FromInput<"age", 2>,
                          ConcatWith<"ids">, Linear<7>, Sigmoid, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t ids) {
        const std::size_t words = o.activation<Sigmoid>(o.flat(o.embedding(ids), 24));
        const std::size_t country = o.embedding(o.column("country"));
        const std::size_t all = o.concatenation(o.column("age"), o.concatenation(country, words));
        return o.dense(o.activation<Sigmoid>(o.dense(all)));
    }
};

/// Ids with several readers: at the Input through a Keep and a Flatten, at a FromInput, and in a block of branches.
struct Readers
    : Sequential<Input<1, 3>, Keep<"ids">, Flatten, Embedding<9, 4>, Flatten, Keep<"a">, From<"ids">,
                 Named<"second", Embedding<7, 5>>, Flatten, Linear<12>, AddFrom<"a">, Keep<"sum">, FromInput<"tags", 2>,
                 Keep<"tags">, Add<Embedding<6, 4>, Branch<Embedding<6, 4, padding_id(2)>, Sigmoid>>, Flatten,
                 Keep<"both">, From<"tags">, Embedding<6, 2>, Flatten, ConcatWith<"both">, ConcatWith<"sum">,
                 Linear<2>> {
    static std::size_t compute(Oracle& o, std::size_t ids) {
        const std::size_t a = o.flat(o.embedding(o.flat(ids, 3)), 12);
        const std::size_t sum = o.sum(o.dense(o.flat(o.embedding(ids), 15)), a), tags = o.column("tags");
        const std::size_t first = o.embedding(tags), second = o.activation<Sigmoid>(o.embedding(tags, 2));
        const std::size_t both = o.flat(o.sum(first, second), 8);
        return o.dense(o.concatenation(o.concatenation(o.flat(o.embedding(tags), 4), both), sum));
    }
};

/// A float Input, whose gradient can be asked for, beside ids with two readers.
struct Mixed
    : Sequential<Input<5>, Linear<4>, Sigmoid, Keep<"x">, FromInput<"id", 1>, Keep<"id">, Embedding<8, 4>, Flatten,
                 AddFrom<"x">, Keep<"y">, From<"id">, Embedding<8, 3>, Flatten, ConcatWith<"y">, Linear<2>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const std::size_t h = o.activation<Sigmoid>(o.dense(x)), id = o.column("id");
        const std::size_t y = o.sum(o.embedding(id), h);
        return o.dense(o.concatenation(o.embedding(id), y));
    }
};

static_assert(Words::layers[0].column_type == ElementType::int32 && Words::layers[0].ids == 11);
static_assert(std::is_same_v<InputValue<Words>, std::int32_t> && std::is_same_v<InputValue<Mixed>, float>);
static_assert(Readers::layers[0].ids == 7, "of two readers the smaller table is the limit");
static_assert(count_inputs(Words::layers) == 3 && reads_other_types(Words::layers));

}  // namespace

TYPED_TEST_CASE("networks that read ids compute what the oracle does, forward and backward", D, DevicesAndElements) {
    constexpr double tolerance = std::is_same_v<ElementOf<D>, float> ? 2e-5 : 8e-2;
    for (const std::int64_t batch : {1, 3, 8}) {
        agrees<Words, D>(batch, tolerance, false);
        agrees<Readers, D>(batch, tolerance, false);
        agrees<Mixed, D>(batch, tolerance, true);
        agrees<Mixed, D>(batch, tolerance, false);
    }
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("a network lists the types of the columns that it reads, and the limits of their ids") {
    const auto required = required_inputs(Words::layers);
    REQUIRE(required.size() == 3);
    CHECK(required[0].column == ColumnSpec{"input", ElementType::int32, {4}});
    CHECK(required[0].ids == 11);
    CHECK(required[1].column == ColumnSpec{"country", ElementType::int32, {1}});
    CHECK(required[1].ids == 5);
    CHECK(required[2].column == ColumnSpec{"age", ElementType::float32, {2}});
    CHECK(required[2].ids == 0);
}

TEST_CASE("networks that read ids pass the check of gradients") {
    const auto right = [](const GradientCheck& check) {
        INFO(check.report());
        CHECK(static_cast<bool>(check));
        for (const auto& tensor : check.tensors()) CHECK(tensor.name != "input");
    };
    right(check_gradients<Words, CrossEntropy<3>, Host>({.batch = 3}));
    right(check_gradients<Readers, CrossEntropy<2>, Host>({.batch = 2}));
    const GradientCheck mixed = check_gradients<Mixed, CrossEntropy<2>, Host>({.batch = 3});
    INFO(mixed.report());
    CHECK(static_cast<bool>(mixed));
    CHECK(mixed.tensors()[0].name == "input");
}

TEST_CASE("a pass asks for the column of ids, and a gradient of ids does not exist") {
    using Net = Sequential<Input<2>, Embedding<3, 2>, Flatten>;
    HostContext context(0, {.threads = 1});
    auto plan = Plan<Host>::make<Net>(context, {.batch = 1, .training = false});
    operation_run::Guarded<Host> arena(context, plan.bytes().total());
    plan.bind(arena.bytes());
    const std::array<float, 6> table{1, 2, 3, 4, 5, 6};
    const std::array<float, 2> floats{};
    CHECK(contains(message_of<InvalidArgument>([&] { (void)plan.forward(context, floats.data(), table.data(), {}); }),
                   "a pass of this network reads the column input of int32, which its batch lacks"));
    CHECK(contains(message_of<InvalidArgument>(
                       [&] { (void)Plan<Host>::make<Net>(context, {.batch = 1, .input_gradient = true}); }),
                   "an input of int32 has no gradient"));
    const std::array<std::int32_t, 2> ids{2, 0};
    const BatchView view(1, {{{input_column, ElementType::int32, {2}}, ids.data()}});
    const float* const output = plan.forward(context, view, table.data(), {.training = false});
    CHECK(std::vector<float>(output, output + 4) == std::vector<float>{5, 6, 1, 2});
}

TEST_CASE("inputs in host memory are checked for ids that are out of range") {
    const auto required = required_inputs(Words::layers);
    std::vector<std::int32_t> words{0, 1, 10, 3, 4, 5, 6, 7}, country{0, 4};
    const std::vector<float> age(4);
    const BatchView batch(
        2,
        {{required[0].column, words.data()}, {required[1].column, country.data()}, {required[2].column, age.data()}});
    require_inputs(batch, required);
    country[1] = 5;
    CHECK(contains(message_of<InvalidArgument>([&] { require_inputs(batch, required); }),
                   "the ids of an input must be in range, but column country of sample 1 has the id "
                   "5 at [0], and ids are 0 to 4"));
    words[6] = -1;
    CHECK(contains(message_of<InvalidArgument>([&] { require_inputs(batch, required); }),
                   "sample 1 has the id -1 at [2], and ids are 0 to 10"));
}

TEST_CASE("an embedding can be frozen, and shared") {
    struct Tables : Sequential<Input<2>, Keep<"ids">, Tied<"table", Embedding<4, 3>>, Flatten, Keep<"a">, From<"ids">,
                               Tied<"table", Embedding<4, 3>>, Flatten, AddFrom<"a">, Linear<2>> {};
    static_assert(Tables::parameter_count == 4 * 3 + 6 * 2 + 2);
    const GradientCheck shared = check_gradients<Tables, CrossEntropy<2>, Host>({.batch = 3});
    CHECK_MESSAGE(shared, shared.report());
    struct Fixed : Frozen<Words, "0.*"> {};
    const GradientCheck frozen = check_gradients<Fixed, CrossEntropy<3>, Host>({.batch = 3});
    CHECK_MESSAGE(frozen, frozen.report());
    CHECK(frozen.tensors()[0].name != "0.weight");
}

TEST_CASE("the summary shows the types of inputs that are not of floats") {
    const std::string table = summary<Words>(2);
    INFO(table);
    CHECK(table.find("Input, int32") != std::string::npos);
    CHECK(table.find("FromInput<country>, int32") != std::string::npos);
    CHECK(table.find("FromInput<age>, int32") == std::string::npos);
    CHECK(summary<Mixed>(2).find("Input, int32") == std::string::npos);
}

#endif
