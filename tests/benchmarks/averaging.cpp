// SPDX-License-Identifier: Apache-2.0
//
// The averaging of four replicas' gradients of the tutorial's network by ConcatMean, and copies that move as many
// bytes, by turns on the same team of threads: what the one takes beside what the machine's memory needs for it.
//
// Then the same by Compressed<ConcatMean>, and what two processes of two replicas each compute in addition to exchange the rows in
// messages of bfloat16: their bytes are half, and the time is what those bytes have to take for compression to be of use.
//
//   averaging [threads] [rounds]        one line of JSON: milliseconds and bytes per second of the copies, the median of each round
#include <cupola/host.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/parallel/compressed.hpp>

#include "../standard.hpp"

using namespace cupola;

namespace {

constexpr std::int64_t replicas = 4, columns = Cifar10Net::parameter_elements;
constexpr int repetitions = 41;

template <class Work>
double median_seconds(Work&& work) {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
        const auto start = std::chrono::steady_clock::now();
        work();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
}

void print(const char* name, const std::vector<double>& values, double factor, const char* end) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.6g", i == 0 ? "" : ", ", values[i] * factor);
    std::printf("]%s", end);
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
    const HostContext context(0, {.threads = threads});
    context.pin_threads(1);
    const auto team = context.team();

    // Rows of one matrix and an average, as a training with four replicas has them.
    const auto row = static_cast<std::size_t>(columns);
    HostArena arena((replicas + 1) * row * sizeof(float), "the gradients");
    auto* const gradients = reinterpret_cast<float*>(arena.data());
    std::fill(gradients, gradients + replicas * columns, 1.0F);
    const float* rows[replicas];
    std::int64_t samples[replicas];
    for (std::int64_t r = 0; r < replicas; ++r) {
        rows[r] = gradients + r * columns;
        samples[r] = 128;
    }
    const std::span<float> mean(gradients + replicas * columns, row);
    const GradientRows all{.rows = rows, .samples = samples, .total_samples = replicas * 128, .columns = columns};

    // Four reads and a write of a row are five moves of it: a copy of two and a half rows makes as many.
    const std::int64_t copied = columns / 2 * 5;
    HostArena from(static_cast<std::size_t>(copied) * sizeof(float), "a copy's source"), to(from.size(), "a copy");
    std::memset(from.data(), 1, from.size());
    std::memset(to.data(), 1, to.size());
    const Compressed<ConcatMean> compressed{};
    HostArena packed(replicas * row * sizeof(BFloat16), "the rows of messages");
    auto* const narrow = reinterpret_cast<BFloat16*>(packed.data());
    std::fill(narrow, narrow + replicas * columns, BFloat16(1.0F));
    const auto fraction = static_cast<std::size_t>(copied) * sizeof(float) / static_cast<std::size_t>(threads);

    std::vector<double> averaging, copying, rounding, packing;
    for (int round = 0; round <= rounds; ++round) {
        const double mine = median_seconds([&] { ConcatMean{}.average(context, all, mean); });
        const double system = median_seconds([&] {
#pragma omp parallel
            {
                const std::size_t begin = static_cast<std::size_t>(omp_get_thread_num()) * fraction;
                std::memcpy(to.data() + begin, from.data() + begin, fraction);
            }
        });
        const double loop = median_seconds([&] {
            const auto* const source = reinterpret_cast<const float*>(from.data());
            auto* const target = reinterpret_cast<float*>(to.data());
#pragma omp parallel for simd schedule(static)
            for (std::int64_t i = 0; i < copied; ++i) target[i] = source[i];
        });
        const double rounded = median_seconds([&] {
            for (std::int64_t r = 0; r < replicas; ++r)
                compressed.prepare(context, std::span<float>(gradients + r * columns, row));
            compressed.average(context, all, mean);
        });
        // Per process: its two rows, the received halves of two rows, its half of the average and the other one.
        const double packed_in = median_seconds([&] {
            for (std::int64_t r = 0; r < 2; ++r) {
                const BFloat16* const received = narrow + (2 + r) * columns;
                ops::Convert<Host>::run(context, rows[r], narrow + r * columns, columns);
                ops::Convert<Host>::run(context, received, gradients + (2 + r) * columns, columns / 2);
            }
            const float* const average = mean.data();
            const BFloat16* const other = narrow + columns / 2;
            ops::Convert<Host>::run(context, average, narrow, columns / 2);
            ops::Convert<Host>::run(context, other, mean.data() + columns / 2, columns / 2);
        });
        if (round == 0) continue;  // pages and threads are there only now
        rounding.push_back(rounded);
        packing.push_back(packed_in);
        averaging.push_back(mine);
        copying.push_back(std::min(system, loop));
    }
    const double bytes = 2.0 * static_cast<double>(copied) * sizeof(float);
    std::vector<double> rates;
    for (const double seconds : copying) rates.push_back(bytes / seconds);
    std::printf("{\"threads\": %d, \"row_bytes\": %zu, ", threads, row * sizeof(float));
    print("averaging_ms", averaging, 1e3, ", ");
    print("copy_ms", copying, 1e3, ", ");
    print("compressed_averaging_ms", rounding, 1e3, ", ");
    print("conversion_of_messages_ms", packing, 1e3, ", ");
    // Two halves of rows and half of the average, to the other process.
    const std::size_t sent = 3 * row / 2 * sizeof(float);
    std::printf("\"bytes_sent_per_process\": {\"float32\": %zu, \"bfloat16\": %zu}, ", sent, sent / 2);
    print("copy_gigabytes_per_second", rates, 1e-9, "}\n");
    return mean[0] == 1.0F ? 0 : 1;
}
