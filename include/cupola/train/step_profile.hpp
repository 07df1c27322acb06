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
#include <cupola/ops/peak_rates.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One part of a step.
struct ProfiledPart {
    /// The layer's name and the types of the layers in the operation: "conv1", "Conv2d<64, 5> + ReLU"; or "" and
    /// "optimiser".
    std::string name, what;
    /// "forward", "backward", or "" for work outside the network.
    std::string_view pass{};
    /// The time in one step.
    double seconds = 0;
    /// The part's floating-point operations, and the bytes that it reads and writes; 0 if unknown.
    double operations = 0, bytes = 0;

    /// The minimum time in seconds at these rates; 0 if unknown.
    [[nodiscard]] double roofline(const PeakRates& rates) const {
        return std::max(operations / rates.operations, bytes / rates.bytes);
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
    std::string table =
        impl::aligned_table(cells) +
        text("step: ", Decimals{1e3 * profile.seconds, 3}, " ms, ",
             Decimals{profile.samples_per_step / profile.seconds, 1}, " samples/s; medians of ", profile.steps,
             " steps on the first device\npeak: ", Decimals{profile.rates.operations * 1e-9, 1},
             " GFLOP/s of a large matrix product, ", Decimals{profile.rates.bytes * 1e-9, 1},
             " GB/s of a large copy\n");
    for (const MeasuredSplit& split : profile.splits) table += text("cut: ", to_string(split), '\n');
    return table;
}

}}  // namespace cupola::CUPOLA_ABI
