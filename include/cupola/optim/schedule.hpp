// SPDX-License-Identifier: Apache-2.0
//
// Learning rates as pure functions of the step. Any callable from a step to a rate is a schedule; this header has the
// usual ones. Steps count from 0, the first update.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

void require_rate(double rate);

}  // namespace impl

/// A rate for each step, and its description for the log. Copies share the function. (Not a std::function: <functional>
/// costs each file that includes this header 15 MB of compiler memory.)
class Schedule {
public:
    /// A constant rate.
    Schedule(double rate);  // NOLINT: a number is a schedule
    template <class Function>
        requires std::is_invocable_r_v<double, const Function&, std::int64_t>
    Schedule(Function function, std::string description = "custom")  // NOLINT: any function of the step is a schedule
        : rate_(static_cast<const Rate*>(new RateOf<Function>(std::move(function)))),
          description_(std::move(description)) {}

    Schedule(const Schedule& other);
    Schedule(Schedule&& other) noexcept;
    Schedule& operator=(const Schedule& other);
    Schedule& operator=(Schedule&& other) noexcept;
    ~Schedule();

    [[nodiscard]] double operator()(std::int64_t step) const { return rate_->at(step); }
    [[nodiscard]] const std::string& description() const { return description_; }
    /// The same rates with another description.
    [[nodiscard]] Schedule described(std::string description) const {
        Schedule result = *this;
        result.description_ = std::move(description);
        return result;
    }

private:
    struct Rate {
        Rate() = default;
        Rate(const Rate&) = delete;
        Rate& operator=(const Rate&) = delete;
        virtual ~Rate() = default;
        [[nodiscard]] virtual double at(std::int64_t step) const = 0;
    };
    template <class Function>
    struct RateOf final : Rate {
        explicit RateOf(Function f) : function(std::move(f)) {}
        [[nodiscard]] double at(std::int64_t step) const override { return function(step); }
        Function function;
    };

    /// Made from a pointer to the base, so that one type of shared pointer is compiled and not one per function.
    std::shared_ptr<const Rate> rate_;
    std::string description_;
};

/// rate * factor^floor(step / decay_steps), TensorFlow's exponential_decay with `staircase`; without it the exponent is
/// not rounded, and the description says so. Throws InvalidArgument for a rate or a factor that is negative or not
/// finite, and for decay_steps below 1.
[[nodiscard]] Schedule exponential_decay(double rate, std::int64_t decay_steps, double factor, bool staircase = true);

/// values[0] before boundaries[0], values[1] from boundaries[0] on, and so on; one value more than boundaries.
[[nodiscard]] Schedule piecewise(std::vector<std::int64_t> boundaries, std::vector<double> values);

/// From `rate` to `last` along half a cosine over `steps` steps, and `last` after them (Loshchilov, Hutter 2016).
[[nodiscard]] Schedule cosine(double rate, std::int64_t steps, double last = 0.0);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/optim/schedule.ipp>
#endif
