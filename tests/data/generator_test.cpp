// SPDX-License-Identifier: Apache-2.0
//
// Batches that a function makes: a pure function of seed, step and replica, endless or in epochs.
#include <cupola/data/generator.hpp>

#include "../test.hpp"

#include <set>

#include <cupola/data/prefetch.hpp>

#include "support.hpp"

using namespace cupola_tests;

namespace {

/// The index as a target, and random numbers as the input.
struct Indexed {
    void operator()(std::int64_t index, const RandomStream& random, const BatchSpan& sample) const {
        const auto words = random.words(0);
        std::transform(words.begin(), words.begin() + 3, sample.inputs(), uniform);
        *sample.data<std::int32_t>("index") = static_cast<std::int32_t>(index);
    }
};

Columns columns() { return {{"index", ElementType::int32, {1}}, {"input", ElementType::float32, {3}}}; }

struct Taken {
    std::vector<float> inputs;
    std::vector<std::int32_t> indices;
    bool operator==(const Taken&) const = default;
};

template <class Batches>
Taken taken(Batches& batches, std::int64_t first, std::int64_t steps, int replicas) {
    SerialContext context;
    Taken result;
    for (std::int64_t step = first; step < first + steps; ++step) {
        for (int replica = 0; replica < replicas; ++replica) {
            const BatchView batch = batches(step, replica, context);
            const auto* indices = batch.template data<std::int32_t>("index");
            result.inputs.insert(result.inputs.end(), batch.inputs(), batch.inputs() + 3 * batch.size);
            result.indices.insert(result.indices.end(), indices, indices + batch.size);
        }
    }
    return result;
}

using Source = Generator<Indexed>;
static_assert(BatchSource<Source>);
static_assert(SampleFunction<Indexed>);
static_assert(!SampleFunction<IdentityTransform>);

}  // namespace

TEST_CASE("an endless generator makes each sample once, in order over steps and replicas") {
    Prefetch batches(Source(columns(), Indexed{}, {.batch_size = 4, .replicas = 3, .seed = 5}));
    const Taken all = taken(batches, 0, 5, 3);
    for (std::size_t i = 0; i < 60; ++i) {
        CHECK(all.indices[i] == static_cast<std::int32_t>(i));
        CHECK(all.inputs[3 * i] == uniform(RandomStream(5, RngDomain::user, 0, i).words(0)[0]));
    }
}

TEST_CASE("the batches are the same for any number of workers and replicas, and from any step on") {
    for (const std::int64_t epoch : {0, 50}) {
        CAPTURE(epoch);
        Prefetch one(Source(columns(), Indexed{}, {.batch_size = 12, .seed = 5}, epoch));
        Prefetch three(Source(columns(), Indexed{}, {.batch_size = 4, .replicas = 3, .seed = 5}, epoch),
                       {.workers = 2});
        Prefetch late(Source(columns(), Indexed{}, {.batch_size = 4, .replicas = 3, .seed = 5}, epoch));
        Prefetch other(Source(columns(), Indexed{}, {.batch_size = 12, .seed = 6}, epoch));
        const Taken expected = taken(one, 0, 9, 1);
        CHECK(taken(three, 0, 9, 3) == expected);
        const Taken end = taken(late, 7, 2, 3);
        CHECK(std::equal(end.inputs.begin(), end.inputs.end(), expected.inputs.begin() + 7 * 12 * 3));
        CHECK(taken(other, 0, 9, 1).inputs != expected.inputs);
    }
}

TEST_CASE("in epochs each sample comes once per epoch, shuffled, and is the same each time") {
    Prefetch batches(Source(columns(), Indexed{}, {.batch_size = 5, .seed = 9}, 20));
    std::vector<std::vector<std::int32_t>> orders;
    std::vector<std::vector<float>> first(20);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        const Taken all = taken(batches, 4 * epoch, 4, 1);
        CHECK(std::set<std::int32_t>(all.indices.begin(), all.indices.end()).size() == 20);
        orders.push_back(all.indices);
        for (std::size_t i = 0; i < 20; ++i) {
            const auto index = static_cast<std::size_t>(all.indices[i]);
            const std::vector<float> input(all.inputs.begin() + 3 * static_cast<std::ptrdiff_t>(i),
                                           all.inputs.begin() + 3 * static_cast<std::ptrdiff_t>(i) + 3);
            if (epoch == 0) first[index] = input;
            CHECK(first[index] == input);
        }
    }
    CHECK(orders[0] != orders[1]);
    CHECK_FALSE(std::ranges::is_sorted(orders[0]));
}

TEST_CASE("an epoch has the samples that were asked for, and an endless stream none") {
    CHECK(Prefetch(Source(columns(), Indexed{}, {.batch_size = 5}, 20)).samples_per_epoch() == 20);
    CHECK(Prefetch(Source(columns(), Indexed{}, {.batch_size = 5})).samples_per_epoch() == 0);
}

TEST_CASE("the first batches of a source are the same in each evaluation and slot") {
    FirstBatches batches(Source(columns(), Indexed{}, {.batch_size = 4, .seed = 5}), 3);
    batches.provide_slots(2);
    CHECK(batches.count() == 3);
    SerialContext context;
    for (const int slot : {0, 1, 0}) {
        const BatchView batch = batches(2, slot, context);
        CHECK(batch.size == 4);
        CHECK(batch.data<std::int32_t>("index")[3] == 11);
    }
    CHECK(message_of<InvalidArgument>([&] { batches(3, 0, context); }) ==
          "batch 3 is out of range: the number of batches is 3");
    CHECK(message_of<InvalidArgument>([&] { batches(0, 2, context); }) ==
          "slot 2 is out of range: the number of slots is 2");
    CHECK(message_of<InvalidArgument>([&] { FirstBatches(Source(columns(), Indexed{}, {.batch_size = 4}), 0); }) ==
          "an evaluation must have at least 1 batch, not 0");
}

TEST_CASE("an exception of the function comes from the batch that needed the sample") {
    const auto fails = [](std::int64_t index, const RandomStream&, const BatchSpan&) {
        require<DataError>(index != 6, "sample ", index, " cannot be made");
    };
    SerialContext context;
    for (const int workers : {0, 1}) {
        Prefetch batches(Generator(columns(), fails, {.batch_size = 4}), {.workers = workers});
        CHECK(batches(0, 0, context).size == 4);
        CHECK(message_of<DataError>([&] { batches(1, 0, context); }) == "sample 6 cannot be made");
    }
}

TEST_CASE("what the function does not write is a NaN or the lowest integer, not a value of another batch") {
    const auto first = [](std::int64_t index, const RandomStream&, const BatchSpan& sample) {
        sample.inputs()[0] = static_cast<float>(index);
        if (index < 4) sample.data<std::int32_t>("index")[0] = 7;
    };
    FirstBatches batches(Generator(columns(), first, {.batch_size = 4}), 2);
    SerialContext context;
    for (const std::int64_t index : {0, 1, 0}) {
        const BatchView batch = batches(index, 0, context);
        for (std::int64_t i = 0; i < 4; ++i) {
            CHECK(batch.inputs()[3 * i] == static_cast<float>(4 * index + i));
            CHECK(std::isnan(batch.inputs()[3 * i + 1]));
            CHECK(batch.data<std::int32_t>("index")[i] == (index == 0 ? 7 : std::numeric_limits<std::int32_t>::min()));
        }
    }
}

TEST_CASE("columns without an input, and impossible numbers, are rejected") {
    const auto refusal = [](const Columns& given, const BatchOptions& options, std::int64_t epoch) {
        return message_of<InvalidArgument>([&] { Source(given, Indexed{}, options, epoch); });
    };
    CHECK(refusal({{"index", ElementType::int32, {1}}, {"x", ElementType::float32, {3}}}, {}, 0) ==
          "a generator has no column \"input\", which a network reads: its columns are index, x");
    CHECK(refusal(columns(), {.batch_size = 0}, 0) == "a batch must have at least 1 sample, not 0");
    CHECK(refusal(columns(), {.batch_size = 1, .replicas = 0}, 0) == "there must be at least 1 replica, not 0");
    CHECK(refusal(columns(), {.batch_size = 1LL << 62, .replicas = 4}, 0) ==
          "the global batch (4 replicas of 4611686018427387904 samples) is larger than 4294967295");
    CHECK(refusal({{"input", ElementType::float32, {3, 0}}}, {}, 0) ==
          "the column input of a generator has the extents 3 x 0, and needs 1 to 4294967295 values");
    CHECK(refusal({{"input", ElementType::float32, {1LL << 32, 1LL << 32}}}, {}, 0) ==
          "the column input of a generator has the extents 4294967296 x 4294967296, and needs 1 to 4294967295 values");
    CHECK(refusal(columns(), {.batch_size = 1}, -1) ==
          "an epoch of a generator must have 0 (endless) or more samples, not -1");
    CHECK(refusal(columns(), {.batch_size = 6, .replicas = 2}, 11) ==
          "the global batch (2 replicas of 6 samples) is larger than an epoch of the generator, which has 11");
    const Columns long_ones{{"input", ElementType::float32, {1LL << 31}}};
    CHECK(contains(message_of<OutOfMemory>([&] { Prefetch(Source(long_ones, Indexed{}, {.batch_size = 1LL << 31})); }),
                   "the column input of a batch of 2147483648 samples needs 18446744073.7 GB"));
    const Source source(columns(), Indexed{}, {.batch_size = 6, .replicas = 2});
    const Columns own = columns();
    const BatchSpan nowhere(own);
    CHECK(message_of<InvalidArgument>([&] { source.fill(-1, 0, 0, 1, nowhere); }) ==
          "step -1 is out of range for batches of 12 samples");
    CHECK(message_of<InvalidArgument>([&] { source.fill(0, 2, 0, 1, nowhere); }) ==
          "replica 2 is out of range: the number of replicas is 2");
}
