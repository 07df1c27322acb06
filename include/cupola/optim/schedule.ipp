// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/optim/schedule.hpp.
#pragma once

#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL void impl::require_rate(double rate) {
    require(impl::is_finite(rate) && rate >= 0, "a learning rate must be at least 0, not ", rate);
}

CUPOLA_DECL Schedule::Schedule(double rate)
    : Schedule([rate](std::int64_t) { return rate; }, text("constant ", exact_text(rate))) {
    impl::require_rate(rate);
}

CUPOLA_DECL Schedule::Schedule(const Schedule& other) = default;
CUPOLA_DECL Schedule::Schedule(Schedule&& other) noexcept = default;
CUPOLA_DECL Schedule& Schedule::operator=(const Schedule& other) = default;
CUPOLA_DECL Schedule& Schedule::operator=(Schedule&& other) noexcept = default;
CUPOLA_DECL Schedule::~Schedule() = default;

CUPOLA_DECL Schedule exponential_decay(double rate, std::int64_t decay_steps, double factor, bool staircase) {
    impl::require_rate(rate);
    require(decay_steps > 0, "a schedule must decay every 1 or more steps, not every ", decay_steps);
    require(impl::is_finite(factor) && factor >= 0, "the factor of a decay must be at least 0, not ", factor);
    return {[=](std::int64_t step) {
                const double exponent = staircase ? static_cast<double>(step / decay_steps)
                                                  : static_cast<double>(step) / static_cast<double>(decay_steps);
                return rate * std::pow(factor, exponent);
            },
            text(exact_text(rate), ", times ", exact_text(factor), " every ", decay_steps, " steps",
                 staircase ? "" : ", smoothly")};
}

CUPOLA_DECL Schedule piecewise(std::vector<std::int64_t> boundaries, std::vector<double> values) {
    require(values.size() == boundaries.size() + 1, "a piecewise schedule of ", boundaries.size(), " boundaries needs ",
            boundaries.size() + 1, " values, not ", values.size());
    for (const double value : values) impl::require_rate(value);
    for (std::size_t i = 1; i < boundaries.size(); ++i) {
        require(boundaries[i - 1] < boundaries[i], "the boundaries of a piecewise schedule must increase; ",
                boundaries[i], " follows ", boundaries[i - 1]);
    }
    std::string description = exact_text(values[0]);
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
        description += text(", ", exact_text(values[i + 1]), " from step ", boundaries[i]);
    }
    return {[boundaries = std::move(boundaries), values = std::move(values)](std::int64_t step) {
                std::size_t i = 0;
                while (i < boundaries.size() && step >= boundaries[i]) ++i;
                return values[i];
            },
            std::move(description)};
}

CUPOLA_DECL Schedule cosine(double rate, std::int64_t steps, double last) {
    impl::require_rate(rate);
    impl::require_rate(last);
    require(steps > 0, "a cosine schedule must last 1 or more steps, not ", steps);
    return {[=](std::int64_t step) {
                constexpr double pi = 3.141592653589793;
                if (step >= steps) return last;
                const double progress = static_cast<double>(step) / static_cast<double>(steps);
                return last + (rate - last) * 0.5 * (1.0 + std::cos(pi * progress));
            },
            text("cosine from ", exact_text(rate), " to ", exact_text(last), " over ", steps, " steps")};
}

}}  // namespace cupola::CUPOLA_ABI
