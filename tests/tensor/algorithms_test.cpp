// SPDX-License-Identifier: Apache-2.0
//
// Element-wise algorithms reach every element once, and sums and hashes have the same bits for any number of threads,
// any affinity, and again.
//
// Covers: cupola/core/hash_word.hpp
#include "../test.hpp"

#include <random>

#include <sched.h>

#include <cupola/core/hash_word.hpp>
#include <cupola/tensor/algorithms.hpp>

#include "../reference/compare.hpp"

namespace {

constexpr std::int64_t blocks_per_round = 512;

/// Around the edges of a block, and of a round of blocks.
const std::vector<std::int64_t> sizes{0,
                                      1,
                                      2,
                                      4095,
                                      4096,
                                      4097,
                                      2 * 4096,
                                      100'003,
                                      blocks_per_round* block_size - 1,
                                      blocks_per_round* block_size,
                                      blocks_per_round* block_size + 1};

/// Numbers of very different magnitude, so that any other order of additions gives other bits.
std::vector<float> spread_values(std::int64_t count) {
    reference::Random random(42);
    std::vector<float> values = random.normal(count);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], static_cast<int>(i % 37) - 18);
    return values;
}

/// The result of `f` in a thread that may run on one processor only.
template <class Function>
auto on_one_processor(Function f) {
    decltype(f()) result{};
    std::thread([&] {
        cpu_set_t allowed;
        sched_getaffinity(0, sizeof allowed, &allowed);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
            if (CPU_ISSET(cpu, &allowed)) {
                CPU_SET(cpu, &one);
                break;
            }
        }
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
        result = f();
    }).join();
    return result;
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

}  // namespace

TEST_CASE("parallel_for calls each index once, whatever the threads") {
    for (const int threads : {1, 2, 3, 4}) {
        const HostContext context(0, {.threads = threads});
        for (const std::int64_t count : {0, 1, 2, 3, 5, 1000}) {
            std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
            parallel_for(context, count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
            for (const auto& called : calls) CHECK(called == 1);
        }
        bool called = false;
        parallel_for(context, -1, [&](std::int64_t) { called = true; });
        CHECK_FALSE(called);
    }
}

TEST_CASE("parallel_for runs on the device's team, no more and no fewer") {
    for (const int threads : {1, 2, 3}) {
        const HostContext context(0, {.threads = threads});
        std::atomic<int> most{0};
        parallel_for(context, 64, [&](std::int64_t) { most = std::max(most.load(), omp_get_num_threads()); });
        CHECK(most == threads);
    }
}

TEST_CASE("for_each_block covers the range with whole blocks and one remainder") {
    const HostContext context(0, {.threads = 2});
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        std::vector<unsigned char> touched(static_cast<std::size_t>(count));
        std::atomic<std::int64_t> calls{0}, wrong{0};
        for_each_block(context, count, [&](std::int64_t begin, std::int64_t end) {
            ++calls;
            if (begin % block_size != 0 || end <= begin || (end - begin != block_size && end != count)) ++wrong;
            for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
        });
        CHECK(calls == (count + block_size - 1) / block_size);
        CHECK(wrong == 0);
        CHECK(std::count(touched.begin(), touched.end(), 1) == count);
    }
}

TEST_CASE("fill writes every element and nothing around them") {
    const HostContext context(0, {.threads = 2});
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        std::vector<float> values(static_cast<std::size_t>(count) + 2, -1.0F);
        fill(context, std::span(values).subspan(1, static_cast<std::size_t>(count)), 7.5F);
        CHECK(std::count(values.begin(), values.end(), 7.5F) == count);
        CHECK(values.front() == -1.0F);
        CHECK(values.back() == -1.0F);
    }
}

TEST_CASE("transform applies the function to every element, to another type and in place") {
    const HostContext context(0, {.threads = 2});
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        std::vector<std::uint8_t> from(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 31);
        std::vector<float> to(from.size(), std::numeric_limits<float>::quiet_NaN());
        transform(context, std::span<const std::uint8_t>(from), std::span(to),
                  [](std::uint8_t value) { return static_cast<float>(value) * 2.0F; });
        bool right = true;
        for (std::size_t i = 0; i < from.size(); ++i) right = right && to[i] == 2.0F * static_cast<float>(from[i]);
        CHECK(right);
        transform(context, std::span<const float>(to), std::span(to), [](float value) { return value + 1.0F; });
        for (std::size_t i = 0; i < from.size(); ++i)
            right = right && to[i] == 2.0F * static_cast<float>(from[i]) + 1.0F;
        CHECK(right);
    }
}

TEST_CASE("a sum of squares is right to the precision of double") {
    const HostContext context(0, {.threads = 2});
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        const std::vector<float> values = spread_values(count);
        long double expected = 0;
        for (const float value : values) expected += static_cast<long double>(value) * static_cast<long double>(value);
        const double sum = sum_of_squares(context, values);
        CHECK(std::abs(sum - static_cast<double>(expected)) <= 1e-13 * static_cast<double>(expected));
    }
}

TEST_CASE("a sum has the same bits for any number of threads and any affinity") {
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        const std::vector<float> values = spread_values(count);
        const auto sum = [&](int threads) {
            return bits(sum_of_squares(HostContext(0, {.threads = threads}), values));
        };
        const std::uint64_t expected = sum(1);
        for (const int threads : {1, 2, 3, 4}) {
            CAPTURE(threads);
            CHECK(sum(threads) == expected);
            CHECK(on_one_processor([&] { return sum(threads); }) == expected);
        }
    }
}

TEST_CASE("blocks are added in their order") {
    // 1 is lost when it is added to 1e16 one at a time, and kept when the ones are added first.
    const HostContext context(0, {.threads = 2});
    const auto value_of = [](std::int64_t block) { return block == 0 ? 1e16 : 1.0; };
    const std::int64_t blocks = blocks_per_round + 3;
    double expected = 0;
    for (std::int64_t block = 0; block < blocks; ++block) expected += value_of(block);
    CHECK(expected == 1e16);
    CHECK(sum_blocks(context, blocks * block_size,
                     [&](std::int64_t begin, std::int64_t) { return value_of(begin / block_size); }) == expected);
}

TEST_CASE("a NaN or an infinity anywhere reaches the sum") {
    const HostContext context(0, {.threads = 2});
    std::vector<float> values(10'000, 1.0F);
    values[7777] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(sum_of_squares(context, values)));
    values[7777] = std::numeric_limits<float>::infinity();
    CHECK(std::isinf(sum_of_squares(context, values)));
}

TEST_CASE("all numbers are finite until one is a NaN or an infinity, wherever it stands") {
    for (const int threads : {1, 2}) {
        const HostContext context(0, {.threads = threads});
        for (const std::int64_t count : sizes) {
            CAPTURE(count);
            std::vector<float> values = spread_values(count);
            CHECK(all_finite(context, values));
            for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
                if (count == 0) continue;
                float& value = values[static_cast<std::size_t>(at)];
                const float kept = value;
                constexpr float most = std::numeric_limits<float>::max(),
                                infinite = std::numeric_limits<float>::infinity();
                for (const float finite : {most, -most, 0.0F, -0.0F, std::numeric_limits<float>::denorm_min()}) {
                    value = finite;
                    CHECK(all_finite(context, values));
                }
                const float no_number = std::numeric_limits<float>::quiet_NaN();
                for (const float other :
                     {infinite, -infinite, no_number, -no_number, std::bit_cast<float>(0x7F80'0001U)}) {
                    value = other;
                    CHECK_FALSE(all_finite(context, values));
                }
                value = kept;
            }
        }
    }
}

TEST_CASE("a hash is the same for any number of threads and any affinity") {
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        const std::vector<float> values = spread_values(count);
        const auto hash = [&](int threads) { return hash_of(HostContext(0, {.threads = threads}), values); };
        const std::uint64_t expected = hash(1);
        for (const int threads : {2, 3, 4}) CHECK(hash(threads) == expected);
        CHECK(on_one_processor([&] { return hash(2); }) == expected);
    }
}

TEST_CASE("a hash is the sum over the pairs and what is left of an odd number, and each word changes with each bit") {
    const HostContext context(0, {.threads = 2});
    for (const std::int64_t count : sizes) {
        CAPTURE(count);
        const std::vector<float> values = spread_values(count);
        std::uint64_t expected = 0;
        for (std::int64_t i = 0; i < count; i += 2) {
            const std::uint64_t golden = 0x9e3779b97f4a7c15, mask = (static_cast<std::uint64_t>(i / 2) + 1) * golden;
            const bool is_last = i + 1 == count;
            std::uint64_t word = std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]);
            if (!is_last)
                word += std::uint64_t{std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i) + 1])} << 32;
            word ^= is_last ? ~mask : mask;
            expected += (word % (std::uint64_t{1} << 32)) * (word / (std::uint64_t{1} << 32)) + word;
        }
        CHECK(hash_of(context, values) == expected);
    }
    std::mt19937_64 random(7);
    std::vector<std::uint64_t> words{0, ~std::uint64_t{0}, 0xffff'ffff, 0xffff'ffff'0000'0000};
    while (words.size() < 1000) words.push_back(random());
    for (const std::uint64_t word : words) {
        for (int bit = 0; bit < 64; ++bit)
            REQUIRE(impl::hash_of_word(word ^ (std::uint64_t{1} << bit), 0) != impl::hash_of_word(word, 0));
    }
}

TEST_CASE("a hash changes with every single bit, with the sign of a zero and with a swap") {
    const HostContext context(0, {.threads = 2});
    std::vector<float> values = spread_values(4097);
    const std::uint64_t before = hash_of(context, values);
    for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}}) {
        for (int bit = 0; bit < 32; ++bit) {
            const float kept = values[at];
            values[at] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1U << bit));
            CHECK(hash_of(context, values) != before);
            values[at] = kept;
        }
    }
    CHECK(hash_of(context, values) == before);
    std::swap(values[10], values[11]);
    CHECK(hash_of(context, values) != before);
    std::swap(values[10], values[11]);
    std::swap(values[0], values[4096]);
    CHECK(hash_of(context, values) != before);

    const std::vector<float> positive(100, 0.0F);
    std::vector<float> negative = positive;
    negative[50] = -0.0F;
    CHECK(hash_of(context, positive) != hash_of(context, negative));
}

TEST_CASE("a hash differs for arrays of zeros of different lengths") {
    const HostContext context(0, {.threads = 1});
    const std::vector<float> zeros(100, 0.0F);
    CHECK(hash_of(context, zeros) != hash_of(context, std::span(zeros).first(99)));
    CHECK(hash_of(context, std::span(zeros).first(2)) != hash_of(context, std::span(zeros).first(1)));
}
