// SPDX-License-Identifier: Apache-2.0
//
// Compressed between processes, which are threads that exchange through a hub: the bits of one process, whether rows and
// averages are in common memory or in messages, which have half the bytes.
//
// Covers: cupola/parallel/compressed.hpp, cupola/processes/agreement/slice_messages.hpp,
// cupola/processes/agreement/process_compressed_sums_agreement.hpp
#include <cupola/parallel/compressed.hpp>

#include "../test.hpp"

#include <cupola/host.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "parallel/policies.hpp"
#include "process_trainings.hpp"
#include "thread_processes.hpp"

namespace {

using processes::AnyStatistics, processes::Batches, processes::Case;
constexpr int steps = 5;
using CompressedRows = Compressed<ThreadConcatMean>;
using CompressedSums = Compressed<ThreadSum>;

static_assert(SpansProcesses<CompressedRows> && !sums_of_processes<CompressedRows>);
static_assert(SpansProcesses<CompressedSums> && sums_of_processes<CompressedSums>);
static_assert(std::is_same_v<MessageElement<CompressedRows>, BFloat16> &&
              std::is_same_v<MessageElement<ThreadConcatMean>, float>);
static_assert(CompressedRows::name == "Compressed<ThreadConcatMean, bfloat16>");

/// What the training of each process returns from run(training).
template <class Averaging, class Statistics, class Run>
auto results_of(Hub& hub, const Case& c, const Statistics& statistics, Run&& run) {
    using Training = processes::Training<Averaging, Statistics>;
    std::vector<decltype(run(std::declval<Training&>()))> results(static_cast<std::size_t>(hub.count()));
    const auto errors = on_threads(hub.count(), [&](int number) {
        const Averaging averaging{.policy = {.hub = &hub, .number = number}};
        Training training(processes::options_of(c, averaging, statistics));
        results[static_cast<std::size_t>(number)] = run(training);
    });
    CHECK(errors == std::vector<std::string>(errors.size()));
    return results;
}

template <class Statistics>
void check_equal(const Case& c, const Statistics& statistics) {
    Case alone = c;
    alone.devices = 1;
    const auto trace = [&](auto& training) { return trace_of(training, Batches(c), steps); };
    processes::Training<Compressed<ConcatMean>, Statistics> one(
        processes::options_of(alone, Compressed<ConcatMean>{}, statistics));
    const std::vector<std::byte> expected = trace(one);
    for (const int count : {1, 2, 4}) {
        if (c.devices > 4 / count) continue;
        for (const bool shares : {true, false}) {
            CAPTURES(count, shares);
            Hub hub(count, shares);
            for (const auto& each : results_of<CompressedRows>(hub, c, statistics, trace)) CHECK(each == expected);
        }
    }
}

/// The bytes that all processes send in `steps` steps, without what they send to start.
template <class Averaging>
std::size_t bytes_per_step(auto&& averaging_of, int count) {
    Hub hub(count, false);
    std::size_t few = 0, many = 0;
    for (const int made : {1, 3}) {
        const std::size_t before = hub.bytes();
        const auto errors = on_threads(count, [&](int number) {
            auto options = processes::options_of(Case{}, averaging_of(hub, number), AnyStatistics{});
            options.check_every = 0;
            processes::Training<Averaging, AnyStatistics> training(options);
            for (int s = 0; s < made; ++s) training.step(Batches(Case{}));
        });
        CHECK(errors == std::vector<std::string>(errors.size()));
        (made == 1 ? few : many) = hub.bytes() - before;
    }
    return (many - few) / 2;
}

}  // namespace

TEST_CASE("compressed, 1, 2 and 4 processes have the bits of one, in common memory and in messages") {
    check_equal({.unequal = true}, AnyStatistics{1});
    check_equal({.accumulation = 2}, AnyStatistics{2});
    check_equal({.unequal = true, .accumulation = 2, .devices = 2}, AnyStatistics{3});
    check_equal({.unequal = true}, Synchronized{});
}

TEST_CASE("messages have half the bytes") {
    const auto plain = [](Hub& hub, int number) { return ThreadConcatMean{.hub = &hub, .number = number}; };
    const auto compressed = [&](Hub& hub, int number) { return CompressedRows{.policy = plain(hub, number)}; };
    constexpr auto elements = static_cast<std::size_t>(processes::Net::trained_elements);
    for (const int count : {2, 4}) {
        const std::size_t before = bytes_per_step<ThreadConcatMean>(plain, count);
        const std::size_t after = bytes_per_step<CompressedRows>(compressed, count);
        // The columns of each of the four rows that other processes average, and the average for each other process.
        const auto others = static_cast<std::size_t>(count - 1);
        const std::size_t moved = 4 * elements * others / static_cast<std::size_t>(count) + others * elements;
        CHECK(std::abs(static_cast<double>(before - after) - 2.0 * static_cast<double>(moved)) < 4.0 * 1024 * 2);
    }
    // The hub's sum sends all floats to all others; the compressed one each sum and each total once, without the own slices.
    const auto sums = [](Hub& hub, int number) { return ThreadSum{.hub = &hub, .number = number}; };
    const auto compressed_sums = [&](Hub& hub, int number) { return CompressedSums{.policy = sums(hub, number)}; };
    CHECK(bytes_per_step<ThreadSum>(sums, 4) - 4 * 4 * 3 * elements ==
          bytes_per_step<CompressedSums>(compressed_sums, 4) - 2 * 2 * 3 * elements);
}

TEST_CASE("the sums of the processes are rounded once each, added in their order, and rounded once") {
    const Case c{.unequal = true, .devices = 2};
    const Batches batches(c);
    // The rows of the first step, without compression.
    processes::Training<ConcatMean, AnyStatistics> alone(processes::options_of(c, ConcatMean{}, AnyStatistics{}));
    const StepReport report = alone.step(batches);
    const std::vector<float> mean = alone.averaged_gradient();
    const auto elements = mean.size();
    for (const int count : {1, 2}) {
        CAPTURE(count);
        std::vector<float> totals(elements);
        const int here = processes::replicas / count;
        for (int p = 0; p < count; ++p) {
            std::vector<float> sum(elements);
            for (int r = p * here; r < (p + 1) * here; ++r) {
                const auto samples = report.replicas[static_cast<std::size_t>(r)].samples;
                if (samples == 0) continue;
                const auto weight =
                    static_cast<float>(static_cast<double>(samples) / static_cast<double>(report.samples));
                std::vector<float> row = alone.gradient(r);
                // It is shown divided by the weight per sample of the replica.
                const ReplicaReport& replica = report.replicas[static_cast<std::size_t>(r)];
                for (float& each : row)
                    each = static_cast<float>(each * replica.weight / static_cast<double>(replica.samples));
                for (std::size_t i = 0; i < elements; ++i)
                    sum[i] = sum[i] == 0 ? weight * row[i] : sum[i] + weight * row[i];
            }
            for (std::size_t i = 0; i < elements; ++i) totals[i] += static_cast<float>(BFloat16(sum[i]));
        }
        // The mean of the weights of the loss, which the average is divided by after it was rounded.
        const double divisor = report.weight / static_cast<double>(report.samples);
        Hub hub(count, true);
        const auto found = results_of<CompressedSums>(hub, c, AnyStatistics{}, [&](auto& training) {
            training.step(batches);
            return training.averaged_gradient();
        });
        for (const std::vector<float>& each : found) {
            CHECK(each == found[0]);
            REQUIRE(each.size() == elements);
            // A sum in float may be rounded otherwise where the compiler fuses a product and an addition.
            std::size_t different = 0;
            for (std::size_t i = 0; i < elements; ++i) {
                const double expected = static_cast<double>(static_cast<float>(BFloat16(totals[i]))) / divisor;
                const double difference = std::abs(static_cast<double>(each[i]) - expected);
                CHECK(difference <= 0x1p-7 * std::abs(expected) + 1e-9);
                different += difference > 1e-6 * std::abs(expected) ? 1 : 0;
            }
            CHECK(different < elements / 1000);
        }
    }
}

TEST_CASE("sums that are compressed train as those that are not, to rounding") {
    const Case c{.unequal = true, .accumulation = 2};
    const Batches batches(c);
    const auto trained = [&](auto& training) {
        double loss = 0;
        for (int s = 0; s < 20; ++s) loss = training.step(batches).loss;
        std::vector<float> result = training.parameters();
        result.push_back(static_cast<float>(loss));
        return result;
    };
    processes::Training<ConcatMean, AnyStatistics> alone(processes::options_of(c, ConcatMean{}, AnyStatistics{}));
    const std::vector<float> begin = alone.parameters(), expected = trained(alone);
    for (const int count : {2, 4}) {
        Hub hub(count, false);
        const auto found = results_of<CompressedSums>(hub, c, AnyStatistics{}, trained);
        double difference = 0, moved = 0;
        for (std::size_t i = 0; i < begin.size(); ++i) {
            difference += std::pow(static_cast<double>(found[0][i] - expected[i]), 2);
            moved += std::pow(static_cast<double>(begin[i] - expected[i]), 2);
        }
        for (const auto& each : found) CHECK(each == found[0]);
        CHECK(difference > 0);
        // The way of 20 steps, within a few roundings of 2^-8.
        CHECK(std::sqrt(difference / moved) < 0.05);
    }
}

TEST_CASE("compressed, a gradient that is not finite is reported by all processes with the same origin") {
    const Case c;
    Batches with_nan(c);
    with_nan.set_input(22 * 8 * 8 * 3 + 5, std::numeric_limits<float>::quiet_NaN());  // replica 2, which process 1 has
    const auto error_of = [&](auto& training) {
        try {
            training.step(with_nan);
        } catch (const DivergedError& error) {
            CHECK(training.step() == 0);
            return std::string(error.what());
        }
        return std::string();
    };
    processes::Training<ConcatMean, AnyStatistics> alone(processes::options_of(c, ConcatMean{}, AnyStatistics{}));
    const std::string expected = error_of(alone);
    CHECK(expected.find("sample 0 of its batch is not finite") != std::string::npos);
    for (const bool shares : {true, false}) {
        Hub rows(2, shares), sums(2, shares);
        CHECK(results_of<CompressedRows>(rows, c, AnyStatistics{}, error_of) == std::vector<std::string>(2, expected));
        CHECK(results_of<CompressedSums>(sums, c, AnyStatistics{}, error_of) == std::vector<std::string>(2, expected));
    }
}

TEST_CASE("a collective without a compressed form, and a policy that agrees on a centre, are reported in one message") {
    constexpr CompileTimeMessage collective = agreement_diagnostic<Compressed<DeviceSum>, Host>(),
                                 centre = agreement_diagnostic<Compressed<LocalSgd>, Host>(),
                                 sound = agreement_diagnostic<CompressedRows, Host>();
    CHECK(std::string(collective.characters, collective.size) ==
          "Compressed cannot wrap DeviceSum on Host: it lacks `CompressedCollective<Device, Element>`");
    CHECK(std::string(centre.characters, centre.size) ==
          "Compressed moves gradients, and Periodic agrees on a centre: put Compressed inside it");
    CHECK(sound.empty());
}

TEST_CASE("processes of which one is compressed are rejected") {
    Hub hub(2, false);
    const auto errors = on_threads(2, [&](int number) {
        const ThreadConcatMean plain{.hub = &hub, .number = number};
        if (number == 0) {
            const processes::Training<ThreadConcatMean, AnyStatistics> training(
                processes::options_of({}, plain, AnyStatistics{}));
        } else {
            const processes::Training<CompressedRows, AnyStatistics> training(
                processes::options_of({}, CompressedRows{.policy = plain}, AnyStatistics{}));
        }
    });
    const std::string expected =
        "process 1 has another averaging than process 0: Compressed<ThreadConcatMean, bfloat16>, not ThreadConcatMean";
    CHECK(errors == std::vector<std::string>{expected, expected});
}

TEST_CASE("the options of a compressed policy have to be the same on all processes") {
    Hub hub(2, true);
    const auto errors = on_threads(2, [&](int number) {
        const CompressedSums averaging{
            .policy = {.hub = &hub, .number = number, .bucket_bytes = std::int64_t{1024} * (1 + number)}};
        const processes::Training<CompressedSums, AnyStatistics> training(
            processes::options_of({}, averaging, AnyStatistics{}));
    });
    CHECK(errors == std::vector<std::string>(2, "process 1 has another bucket_bytes than process 0: 2048, not 1024"));
}
