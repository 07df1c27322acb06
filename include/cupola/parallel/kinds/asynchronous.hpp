// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous<Rule>: replicas with parameters x of their own exchange with a common centre c one after another, and no
// replica waits for the step of another. `Elastic` is asynchronous elastic averaging (EASGD; with NesterovVelocity
// EAMSGD; Zhang, Choromanska, LeCun 2015), `Downpour` is DOWNPOUR (Dean et al. 2012). A replica exchanges every `every`
// of its own batches:
//
//   Elastic     d = x - c,    x = x - alpha * d - the optimiser's step,    c = c + alpha * d
//   Downpour    c = c + what its last batches have changed in x,           x = c
//
//   DataParallel<Net, Loss, NesterovVelocity, Asynchronous<Elastic>, Host> training(
//       {.replicas = 4, .devices = 4, .averaging = {.rule = {.every = 16}, .ahead = 4}});
//
// A step has one batch per replica, whose samples and random numbers are those of (seed, step, number of the batch).
// With Order::free() a batch goes to the next replica that is free, so fast devices compute more of them, and at most
// `ahead` steps are in flight. The source of batches that queue() is given is called until the report of the step has
// been read, and must live until then: declare it before the training. A batch is copied when it is requested.
// Evaluations, states and checkpoints wait until no step is in flight.
//
// The centre is the model: see parallel/kinds/periodic.hpp. Its moving average moves with every R-th batch of R
// replicas. Learning rates are those of the batch's step. A report names, for each batch, the replica and its
// staleness: how many exchanges of other replicas the centre had since this replica's last one.
//
// A loss or a gradient that is not finite ends the run by a DivergedError that names replica and step. The centre may
// have moved since, so the training is then in the state of the last check (TrainingOptions::check_every), which it
// keeps in memory; without one, that with which it was started or restored.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_training.hpp>
#include <cupola/parallel/kinds/moving_rate.hpp>
#include <cupola/parallel/kinds/order.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

class ElasticExchange final : public CentreExchange {
public:
    ElasticExchange(std::int64_t every, double moving_rate)
        : every_(every), moving_rate_(static_cast<float>(moving_rate)) {}

    [[nodiscard]] std::int64_t every() const override { return every_; }
    [[nodiscard]] bool is_due(std::int64_t since) const override { return since == 0; }
    [[nodiscard]] bool takes_position() const override { return true; }
    void exchange(const ExchangeArenas& at, const Segment& s) const override;

private:
    std::int64_t every_;
    float moving_rate_;
};

class DownpourExchange final : public CentreExchange {
public:
    explicit DownpourExchange(std::int64_t every) : every_(every) {}

    [[nodiscard]] std::int64_t every() const override { return every_; }
    [[nodiscard]] bool is_due(std::int64_t since) const override { return since + 1 == every_; }
    [[nodiscard]] bool keeps_values() const override { return true; }
    void before_update(const ExchangeArenas& at, const Segment& s, std::int64_t since) const override;
    void exchange(const ExchangeArenas& at, const Segment& s) const override;

private:
    std::int64_t every_;
};

/// Throws InvalidArgument unless a period is at least 1.
inline void require_period(std::string_view rule, std::int64_t every) {
    require(every >= 1, rule, " must exchange every 1 or more batches, not every ", every);
}
[[nodiscard]] inline std::string every_batches(std::int64_t every) {
    return text("every ", every, every == 1 ? " batch" : " batches");
}

}  // namespace impl

struct Elastic {
    static constexpr std::string_view name = "Elastic";
    static constexpr bool has_force = true;

    /// Batches of a replica between two exchanges, 1 or more; its first batch has one.
    std::int64_t every = 16;
    /// alpha, as a number or by a convention.
    MovingRate rate = MovingRate::paper(0.9);

    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int replicas) const {
        impl::require_period(name, every);
        rate.check();
        return std::make_unique<impl::ElasticExchange>(every, rate.of(replicas, every));
    }
    [[nodiscard]] std::string description() const {
        return text(name, ' ', impl::every_batches(every), ", ", rate.description());
    }
    [[nodiscard]] std::string warning(int replicas) const {
        return asynchronous_moving_rate_warning(rate, replicas, every);
    }
};

struct Downpour {
    static constexpr std::string_view name = "Downpour";

    /// Batches of a replica between two exchanges, 1 or more; the last of them has one.
    std::int64_t every = 1;

    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int /*replicas*/) const {
        impl::require_period(name, every);
        return std::make_unique<impl::DownpourExchange>(every);
    }
    [[nodiscard]] std::string description() const { return text(name, ' ', impl::every_batches(every)); }
};

/// A rule of your own has these members, and `static constexpr bool has_force = true` if and only if its exchange takes
/// the position before the update. exchange() is also called with the largest int, to ask for its properties.
template <class R>
concept ExchangeRule = requires(const R& rule, int replicas) {
    { rule.exchange(replicas) } -> std::same_as<std::unique_ptr<CentreExchange>>;
    { rule.description() } -> std::convertible_to<std::string>;
};

template <class Rule>
struct Asynchronous {
    static constexpr std::string_view name = "Asynchronous";
    static constexpr bool asynchronous = true;
    static constexpr bool has_force = requires { requires Rule::has_force; };

    Rule rule{};
    /// The largest number of steps in flight, 1 or more.
    std::int64_t ahead = 4;
    Order order = Order::free();
    /// Takes the order of the run whenever no step is in flight; null for none. A log of the training's earlier steps
    /// is continued from the step at which the training continues.
    std::shared_ptr<OrderLog> log{};

    [[nodiscard]] AsynchronousRun run() const { return {ahead, order, log, rule.description()}; }
    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int replicas) const { return rule.exchange(replicas); }
    /// "Asynchronous Elastic every 16 batches, moving rate 0.9 / replicas, in free order, at most 4 steps ahead"
    [[nodiscard]] std::string description() const {
        return text(name, ' ', rule.description(), ", ", order.description(), ", at most ", ahead,
                    ahead == 1 ? " step ahead" : " steps ahead");
    }
    /// A line for the header of a run whose numbers are not stable; otherwise empty.
    [[nodiscard]] std::string warning(int replicas) const {
        if constexpr (requires { rule.warning(replicas); }) return rule.warning(replicas);
        return {};
    }
    template <class D>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message = impl::asynchronous_diagnostic<Asynchronous, D>();
        if (message.empty() && !ExchangeRule<Rule>)
            message << "Asynchronous needs a rule with `exchange(replicas)` and `description()`, such as Elastic or "
                       "Downpour, and "
                    << short_type_name<Rule>() << " is none";
        return message;
    }
};

namespace impl {

inline void ElasticExchange::exchange(const ExchangeArenas& at, const Segment& s) const {
    float* const __restrict x = at.parameters + s.offset;
    float* const __restrict c = at.centre + s.offset;
    const float* const __restrict before = at.row + s.offset;
    for (std::int64_t i = 0; i < s.size; ++i) {
        const float force = moving_rate_ * (before[i] - c[i]);
        c[i] += force;
        x[i] -= force;
    }
}

inline void DownpourExchange::before_update(const ExchangeArenas& at, const Segment& s, std::int64_t since) const {
    if (since != 0) return;
    std::copy_n(at.parameters + s.offset, s.size, at.kept + s.offset);
}

inline void DownpourExchange::exchange(const ExchangeArenas& at, const Segment& s) const {
    float* const __restrict x = at.parameters + s.offset;
    float* const __restrict c = at.centre + s.offset;
    const float* const __restrict fetched = at.kept + s.offset;
    for (std::int64_t i = 0; i < s.size; ++i) {
        c[i] += x[i] - fetched[i];
        x[i] = c[i];
    }
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
