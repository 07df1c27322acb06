// SPDX-License-Identifier: Apache-2.0
//
// The random numbers: the published vectors, streams that share nothing, and the moments of the distributions.
#include "../test.hpp"

#include <set>

#include <cupola/core/philox.hpp>

#include "../reference/dropout.hpp"

using Words = RandomWords<4>;

// The known-answer vectors of philox4x32_10 in kat_vectors of Random123, the authors' own library.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST_CASE("Philox computes the published vectors at run time too") {
    const volatile std::uint32_t zero = 0;  // keeps the compiler from computing it
    CHECK(philox4x32({zero, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    const std::uint32_t ones = ~zero;
    CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    const std::uint32_t pi = 0x243f6a88 + zero;
    CHECK(philox4x32({pi, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the oracle's own Philox agrees on arbitrary counters") {
    for (std::uint32_t i = 0; i < 100; ++i) {
        const Words counter{i * 0x9E3779B9U, ~i, i << 7, 17 * i + 3};
        std::uint32_t expected[4] = {counter[0], counter[1], counter[2], counter[3]};
        reference::philox(expected, 123 + i, 456 * i);
        CHECK(philox4x32(counter, {123 + i, 456 * i}) == Words{expected[0], expected[1], expected[2], expected[3]});
    }
}

TEST_CASE("a stream is a pure function, and every part of its name changes it") {
    const std::uint64_t seed = 0x123456789abcdef0;
    const auto words = [](std::uint64_t s, RngDomain domain, std::uint32_t epoch, std::uint64_t index,
                          std::uint32_t block) { return RandomStream(s, domain, epoch, index).words(block); };
    CHECK(words(seed, RngDomain::shuffle, 1, 2, 3) == words(seed, RngDomain::shuffle, 1, 2, 3));

    std::set<Words> seen;
    std::size_t drawn = 0;
    for (const std::uint64_t s : {seed, seed + 1, seed ^ (std::uint64_t{1} << 32), std::uint64_t{0}}) {
        for (const RngDomain domain : {RngDomain::initialization, RngDomain::shuffle, RngDomain::augmentation,
                                       RngDomain::dropout, RngDomain::user}) {
            for (const std::uint32_t epoch : {0U, 1U, 2U, 0xffffffffU}) {
                // Indices that differ in the lower or in the upper half only.
                for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2},
                                                  std::uint64_t{1} << 32, std::uint64_t{2} << 32}) {
                    for (const std::uint32_t block : {0U, 1U, 2U}) {
                        seen.insert(words(s, domain, epoch, index, block));
                        ++drawn;
                    }
                }
            }
        }
    }
    CHECK(seen.size() == drawn);
}

TEST_CASE("uniform numbers lie in [0, 1) and are exact in float") {
    CHECK(uniform(0) == 0.0F);
    CHECK(uniform(0xffffffff) < 1.0F);
    CHECK(uniform(0xffffffff) == 1.0F - 0x1p-24F);
    CHECK(uniform(0x80000000) == 0.5F);
}

TEST_CASE("uniform numbers have the mean, the variance and the independence of a uniform distribution") {
    constexpr int count = 1 << 20;
    double sum = 0, squares = 0, products = 0, before = 0.5;
    for (int block = 0; block < count / 4; ++block) {
        for (const std::uint32_t word :
             RandomStream(7, RngDomain::user, 0, 0).words(static_cast<std::uint32_t>(block))) {
            const auto u = static_cast<double>(uniform(word));
            sum += u;
            squares += (u - 0.5) * (u - 0.5);
            products += (u - 0.5) * (before - 0.5);
            before = u;
        }
    }
    // Six deviations of each estimate; the numbers are fixed, so this either always holds or never.
    CHECK(std::abs(sum / count - 0.5) < 6 * std::sqrt(1.0 / 12 / count));
    CHECK(std::abs(squares / count - 1.0 / 12) < 6 * std::sqrt(1.0 / 180 / count));
    CHECK(std::abs(products / count) < 6 * (1.0 / 12) / std::sqrt(count));
}

TEST_CASE("numbers of neighbouring streams are uncorrelated") {
    constexpr int count = 1 << 18;
    double by_index = 0, by_epoch = 0, by_seed = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto centred = [](const RandomStream& stream) {
            return static_cast<double>(uniform(stream.words(0)[0])) - 0.5;
        };
        const double here = centred(RandomStream(7, RngDomain::user, 0, i));
        by_index += here * centred(RandomStream(7, RngDomain::user, 0, i + 1));
        by_epoch += here * centred(RandomStream(7, RngDomain::user, 1, i));
        by_seed += here * centred(RandomStream(8, RngDomain::user, 0, i));
    }
    const double bound = 6 * (1.0 / 12) / std::sqrt(static_cast<double>(count)) * count;
    CHECK(std::abs(by_index) < bound);
    CHECK(std::abs(by_epoch) < bound);
    CHECK(std::abs(by_seed) < bound);
}

TEST_CASE("uniform_between goes from its lower bound to one step below its upper one") {
    CHECK(uniform_between(0, -3.0, 5.0) == -3.0);
    CHECK(uniform_between(0x80000000, -3.0, 5.0) == 1.0);
    CHECK(uniform_between(0xffffffff, -3.0, 5.0) == 5.0 - 8 * 0x1p-24);
}

TEST_CASE("uniform_below covers its range evenly and never reaches its end") {
    CHECK(uniform_below(0, 10) == 0);
    CHECK(uniform_below(0xffffffff, 10) == 9);
    CHECK(uniform_below(0xffffffff, 1) == 0);
    CHECK(uniform_below(0xffffffff, 0xffffffff) == 0xfffffffe);
    std::vector<int> counts(24);
    constexpr int draws = 240'000;
    for (std::uint32_t i = 0; i < draws; ++i) {
        ++counts[uniform_below(RandomStream(1, RngDomain::user, 0, i).words(0)[2], 24)];
    }
    for (const int count : counts) CHECK(std::abs(count - draws / 24) < 6 * std::sqrt(draws / 24.0));
}

TEST_CASE("normal numbers have mean 0, variance 1 and the tails of a normal distribution") {
    constexpr int count = 1 << 20;
    double sum = 0, squares = 0, fourth = 0;
    int beyond_two = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Words words = RandomStream(3, RngDomain::user, 0, i).words(0);
        const double value = standard_normal(words[0], words[1]);
        sum += value;
        squares += value * value;
        fourth += value * value * value * value;
        beyond_two += std::abs(value) > 2 ? 1 : 0;
    }
    CHECK(std::abs(sum / count) < 6 / std::sqrt(count));
    CHECK(std::abs(squares / count - 1) < 6 * std::sqrt(2.0 / count));
    CHECK(std::abs(fourth / count - 3) < 6 * std::sqrt(96.0 / count));
    CHECK(std::abs(beyond_two / static_cast<double>(count) - 0.045500) < 6 * std::sqrt(0.0455 / count));
}

TEST_CASE("normal numbers are finite for every word") {
    for (const std::uint32_t a : {0U, 1U, 0x80000000U, 0xffffffffU}) {
        for (const std::uint32_t b : {0U, 1U, 0x80000000U, 0xffffffffU}) CHECK(std::isfinite(standard_normal(a, b)));
    }
}
