// SPDX-License-Identifier: Apache-2.0
//
// A batch is a view that owns nothing, is empty without memory, and has its samples' extents.
#include "../test.hpp"

#include <cupola/tensor/batch.hpp>

#include "../throws_with.hpp"

static_assert(std::is_trivially_copyable_v<BatchView>);
static_assert(!std::is_constructible_v<BatchView, const float*, const std::int32_t*>);

TEST_CASE("a batch without memory has no samples") {
    const BatchView batch;
    CHECK(batch.inputs() == nullptr);
    CHECK(batch.labels() == nullptr);
    CHECK(batch.size == 0);
    CHECK(batch.columns().size() == 0);
    CHECK(names_of(batch.columns()) == "none");
}

TEST_CASE("a batch has the extents that it was made with") {
    const float samples[12]{};
    const std::int32_t labels[2]{};
    const BatchView batch{samples, labels, 2, Shape{2, 3, 1}};
    CHECK(batch.inputs() == samples);
    CHECK(batch.labels() == labels);
    CHECK(batch.size == 2);
    CHECK(batch.columns() == Columns{{"input", ElementType::float32, {2, 3, 1}}, {"target", ElementType::int32, {1}}});
    CHECK(input_shape_of(batch.columns()) == Shape{2, 3, 1});
}

TEST_CASE("a batch of float targets has no labels") {
    const float inputs[6]{}, targets[4]{};
    const BatchView batch{inputs, {3}, targets, {2}, 2};
    CHECK(batch.inputs() == inputs);
    CHECK(batch.data<float>("target") == targets);
    CHECK(batch.labels() == nullptr);
    CHECK(batch.data<float>("other") == nullptr);
}

TEST_CASE("a batch has any columns by name") {
    const float inputs[6]{}, boxes[8]{};
    const std::int32_t kinds[2]{};
    const BatchView batch{2,
                          {{{"input", ElementType::float32, {3}}, inputs},
                           {{"kind", ElementType::int32, {1}}, kinds},
                           {{"box", ElementType::float32, {4}}, boxes}}};
    CHECK(batch.data<std::int32_t>("kind") == kinds);
    CHECK(batch.data<float>("box") == boxes);
    CHECK(batch.data(2) == boxes);
    CHECK(names_of(batch.columns()) == "input, kind, box");
    CHECK(batch.columns().place_of("box") == 2);
    CHECK(batch.columns().place_of("other") == 3);
    CHECK(batch.columns()[2].bytes() == 16);
}

TEST_CASE("two columns of one name, and more columns than there may be, are rejected") {
    CHECK(message_of<InvalidArgument>([] {
              Columns{{"a"}, {"b"}, {"a"}};
          }) == "a batch has two columns with the name a");
    CHECK(message_of<InvalidArgument>([] { Columns{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"7"}, {"8"}, {"9"}}; }) ==
          "a batch can have at most 8 columns");
}

TEST_CASE("the memory of a batch is written by column name or number") {
    const Columns columns{{"input", ElementType::float32, {3}}, {"kind", ElementType::int32, {1}}};
    float inputs[6]{};
    std::int32_t kinds[2]{};
    BatchSpan batch(columns);
    batch.set_data(0, reinterpret_cast<std::byte*>(inputs));
    batch.set_data(1, reinterpret_cast<std::byte*>(kinds));
    CHECK(batch.inputs() == inputs);
    CHECK(batch.data<std::int32_t>("kind") == kinds);
    CHECK(batch.at(0, 1) == reinterpret_cast<std::byte*>(inputs + 3));
    CHECK(batch.at(1, 1) == reinterpret_cast<std::byte*>(kinds + 1));
    CHECK(batch.view(2).data<std::int32_t>("kind") == kinds);
    CHECK(batch.view(1).size == 1);
    CHECK(message_of<InvalidArgument>([&] { (void)batch.labels(); }) ==
          "there is no column target of int32 among the columns input, kind");
    CHECK(message_of<InvalidArgument>([&] { (void)batch.data<float>("kind"); }) ==
          "there is no column kind of float32 among the columns input, kind");
}
