// SPDX-License-Identifier: Apache-2.0
//
// The result of `profile` (train/profile.hpp), and its table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/pipeline/measured_split.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/peak_rates.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The minimum time for reading and writing `bytes` in one call, of which `written` are written without being read. As
/// many of them as a cache holds may be there, left by the part before or for the next one; the others move at the rate
/// of the next level.
[[nodiscard, gnu::cold]] inline double transfer_seconds(const PeakRates& rates, double bytes, double written) {
    if (bytes == 0) return 0;
    const double transfers = rates.reads_before_writing ? (bytes + written) / 1.5 : bytes;
    double seconds = 0, left = bytes, held = 0;
    for (const PeakRates::Cache& cache : rates.caches) {
        if (cache.size <= held) continue;
        const double here = std::min(left, cache.size - held);
        seconds += here / cache.bytes;
        left -= here;
        held = cache.size;
    }
    return (seconds + (left > 0 ? left / rates.bytes : 0)) * transfers / bytes;
}

/// The rate of a copy in the nearest cache.
[[nodiscard, gnu::cold]] inline double nearest_bytes(const PeakRates& rates) {
    for (const PeakRates::Cache& cache : rates.caches) {
        if (cache.size > 0) return cache.bytes;
    }
    return rates.bytes;
}

}  // namespace impl

/// One part of a step.
struct ProfiledPart {
    /// The layer's name and the types of the layers in the operation: "conv1", "Conv2d<64, 5> + ReLU"; or "" and
    /// "optimiser".
    std::string name, what;
    /// "forward", "backward", or "" for work outside the network.
    std::string_view pass{};
    /// The time in one step.
    double seconds = 0;
    /// The floating-point operations of its layers' formulas, and the bytes that they read and write; 0 if unknown.
    double operations = 0, bytes = 0;
    /// Those of `bytes` that are written and not read before.
    double written = 0;
    /// What its algorithm computes, if that is something else than `operations`: see OperationWork.
    OperationWork work{};
    /// The number of calls in the step, which have equal parts of all this.
    double calls = 1;

    /// The minimum time in seconds at these rates; 0 if unknown.
    [[nodiscard, gnu::cold]] double roofline(const PeakRates& rates) const {
        const double vectors = rates.vector_operations > 0 ? rates.vector_operations : rates.operations;
        return std::max(work.operations > 0 ? work.operations / vectors : operations / rates.operations,
                        calls * impl::transfer_seconds(rates, bytes / calls, written / calls) +
                            work.cached_bytes / impl::nearest_bytes(rates));
    }
};

struct StepProfile {
    std::int64_t steps = 0;
    /// The number of samples of all replicas.
    double samples_per_step = 0;
    /// The time of a whole step, and the time outside all parts; medians, so they do not add up exactly.
    double seconds = 0, rest = 0;
    PeakRates rates{};
    /// The parts in the order of a step.
    std::vector<ProfiledPart> parts;
    /// The best cuts into 2, 3 and 4 parts of a pipeline, as far as the network has places for them. The first part has
    /// the time of the data, and the last one that of the loss.
    std::vector<MeasuredSplit> splits{};

    /// The sum of all parts' rooflines.
    [[nodiscard]] double roofline() const {
        double sum = 0;
        for (const ProfiledPart& part : parts) sum += part.roofline(rates);
        return sum;
    }
};

namespace impl {

/// The lines below the table that say the rates.
[[nodiscard, gnu::cold]] inline std::string rates_text(const PeakRates& rates) {
    std::string text_of = text("peak: ", Decimals{rates.operations * 1e-9, 1}, " GFLOP/s of a large matrix product, ");
    if (rates.vector_operations > 0) text_of += text(Decimals{rates.vector_operations * 1e-9, 1}, " of vectors, ");
    text_of += text(Decimals{rates.bytes * 1e-9, 1}, " GB/s of a large copy");
    for (const PeakRates::Cache& cache : rates.caches) {
        if (cache.size <= 0) continue;
        text_of += text(", ", Decimals{cache.bytes * 1e-9, 1}, " in caches of ",
                        Decimals{cache.size / (1024 * 1024), 1}, " MiB");
    }
    return text_of + '\n';
}

/// A row of the table; unknown figures are omitted.
[[nodiscard, gnu::cold]] inline std::vector<std::string> profile_row(const StepProfile& profile,
                                                                     const ProfiledPart& part) {
    const double roofline = part.roofline(profile.rates), time = part.seconds;
    const auto known = [&](double value, double shown, int places) {
        return value > 0 && time > 0 ? text(Decimals{shown, places}) : std::string();
    };
    return {part.name,
            part.what,
            std::string(part.pass),
            text(Decimals{1e3 * time, 3}),
            text(Decimals{100 * time / profile.seconds, 1}) + " %",
            known(part.operations, part.operations / time * 1e-9, 1),
            known(part.bytes, part.bytes / time * 1e-9, 1),
            known(roofline, 1e3 * roofline, 3),
            known(roofline, roofline / time, 2)};
}

}  // namespace impl

/// The table: milliseconds and fraction of the step, the achieved rates, the roofline and the achieved fraction of it;
/// then the best cuts.
[[nodiscard, gnu::cold]] inline std::string to_string(const StepProfile& profile) {
    std::vector<std::vector<std::string>> cells{
        {"name", "part", "pass", "ms", "share", "GFLOP/s", "GB/s", "bound ms", "of bound"}};
    ProfiledPart total{.name = "total", .what = {}, .seconds = profile.seconds};
    for (const ProfiledPart& part : profile.parts) {
        cells.push_back(impl::profile_row(profile, part));
        total.operations += part.operations;
    }
    cells.push_back(impl::profile_row(profile, {.name = {}, .what = "the rest", .seconds = profile.rest}));
    cells.push_back(impl::profile_row(profile, total));
    // The roofline of the step is the sum of the parts' rooflines.
    cells.back()[7] = text(Decimals{1e3 * profile.roofline(), 3});
    cells.back()[8] = text(Decimals{profile.roofline() / profile.seconds, 2});
    std::string table = impl::aligned_table(cells) +
                        text("step: ", Decimals{1e3 * profile.seconds, 3}, " ms, ",
                             Decimals{profile.samples_per_step / profile.seconds, 1}, " samples/s; medians of ",
                             profile.steps, " steps on the first device\n") +
                        impl::rates_text(profile.rates);
    for (const MeasuredSplit& split : profile.splits) table += text("cut: ", to_string(split), '\n');
    return table;
}

}}  // namespace cupola::CUPOLA_ABI
