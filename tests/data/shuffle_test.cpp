// SPDX-License-Identifier: Apache-2.0
//
// The shuffled stream: each sample once per epoch, the same for every reader, evenly mixed.
#include <cupola/data/shuffle.hpp>

#include "../test.hpp"

#include "support.hpp"

TEST_CASE("the stream covers each sample exactly once per epoch, and epochs differ") {
    constexpr std::int64_t size = 101;
    const ShuffledOrder order(size, 5);
    std::vector<SampleOfEpoch> stream(3 * size);
    order.samples_at(0, stream);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int> seen(size);
        for (std::size_t i = 0; i < size; ++i) {
            const SampleOfEpoch place = stream[epoch * size + i];
            CHECK(place.epoch == epoch);
            ++seen[place.index];
        }
        CHECK(seen == std::vector<int>(size, 1));
    }
    int equal_places = 0;
    for (std::size_t i = 0; i < size; ++i) equal_places += stream[i].index == stream[size + i].index ? 1 : 0;
    CHECK(equal_places < 8);  // of 101 about 1 by chance
}

TEST_CASE("the order of an epoch is a pure function of seed and epoch") {
    std::vector<std::uint32_t> one(50), again(50), other_seed(50), other_epoch(50);
    shuffle(one, 1, 3);
    shuffle(other_seed, 2, 3);
    shuffle(other_epoch, 1, 4);
    shuffle(again, 1, 3);
    CHECK(one == again);
    CHECK(one != other_seed);
    CHECK(one != other_epoch);
}

TEST_CASE("a look-up does not depend on earlier look-ups") {
    const ShuffledOrder order(10, 9), fresh(10, 9);
    std::vector<SampleOfEpoch> a(7), b(7);
    for (const std::int64_t first : {500LL, 3LL, 28LL, 0LL, 95LL, 3LL}) {
        order.samples_at(first, a);
        for (std::size_t i = 0; i < b.size(); ++i)
            ShuffledOrder(10, 9).samples_at(first + static_cast<std::int64_t>(i), {&b[i], 1});
        for (std::size_t i = 0; i < b.size(); ++i) {
            CHECK(a[i].index == b[i].index);
            CHECK(a[i].epoch == b[i].epoch);
        }
    }
}

TEST_CASE("the order of the next epoch is the same if it is prepared in advance, for any look-ups in between") {
    for (const std::int64_t size : {1, 2, 3, 50, 101}) {
        for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{16}}) {
            const ShuffledOrder order(size, 9);
            std::vector<std::uint32_t> expected(static_cast<std::size_t>(size));
            std::vector<SampleOfEpoch> places(piece);
            bool agrees = true;
            for (std::int64_t first = 0; first < 4 * size; first += static_cast<std::int64_t>(piece)) {
                // Another reader is behind by a little more than an epoch.
                if (first % 5 == 0 && first > size) order.samples_at(first - size - 1, std::span(places).first(1));
                order.samples_at(first, places);
                for (std::size_t i = 0; i < piece; ++i) {
                    const std::int64_t place = first + static_cast<std::int64_t>(i);
                    shuffle(expected, 9, static_cast<std::uint32_t>(place / size));
                    agrees = agrees && places[i].epoch == place / size &&
                             places[i].index == expected[static_cast<std::size_t>(place % size)];
                }
            }
            CHECK_MESSAGE(agrees, size, " in pieces of ", piece);
        }
    }
}

TEST_CASE("every sample is at every position equally often") {
    constexpr std::size_t size = 5, epochs = 20'000;
    std::vector<std::uint32_t> order(size);
    std::vector<int> count(size * size);
    for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
        shuffle(order, 17, epoch);
        for (std::size_t place = 0; place < size; ++place) ++count[place * size + order[place]];
    }
    double chi_squared = 0;
    for (const int n : count) chi_squared += (n - 4000.0) * (n - 4000.0) / 4000.0;
    CHECK(chi_squared < 45);  // 16 degrees of freedom: above 45 once in 7,000 seeds, and the seed is fixed
}

TEST_CASE("threads that look up at the same time see the same stream") {
    // Each thread is in another epoch most of the time, so two kept epochs are never enough.
    constexpr std::size_t size = 500, epochs = 40;
    const ShuffledOrder order(size, 2);
    std::vector<SampleOfEpoch> expected(size * epochs);
    ShuffledOrder(size, 2).samples_at(0, expected);
    std::atomic<int> wrong = 0;
    {
        std::vector<std::jthread> threads;
        for (std::size_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                std::vector<SampleOfEpoch> got(50);
                for (std::size_t round = 0; round < 2000; ++round) {
                    const std::size_t first = (round * 350 + t * 4950) % (size * epochs - got.size());
                    order.samples_at(static_cast<std::int64_t>(first), got);
                    for (std::size_t i = 0; i < got.size(); ++i) {
                        if (got[i].index != expected[first + i].index) ++wrong;
                    }
                }
            });
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("an empty order, or a position before the first, is rejected") {
    CHECK(message_of<InvalidArgument>([] { ShuffledOrder(0, 1); }) ==
          "a data set of 0 samples cannot be shuffled: the number of samples must be 1 to 4294967295");
    SampleOfEpoch place;
    CHECK(message_of<InvalidArgument>([&] {
              ShuffledOrder(2, 1).samples_at(-1, {&place, 1});
          }) == "position -1 of the sample stream is outside the epochs 0 to 4294967295");
}
