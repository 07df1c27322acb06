// SPDX-License-Identifier: Apache-2.0
//
// Order and OrderLog: which replica of an asynchronous training computes which batch, and in what order the replicas
// exchange with the centre. The bits of a run depend on nothing else of its threads, so a run that is replayed by its
// log has the same bits.
//
//   Order::free()          a batch goes to whichever replica is free; replicas exchange as they come
//   Order::round_robin()   batch k of a step is replica k's; exchanges in the order of steps and replicas
//   Order::replay(log)     as a log says
//
// A log has two numbers of replicas per batch. Batch k of step s has the place (s - first_step) * replicas + k in
// `claims`, which has the replica that computed it. `turns` has the replicas in the order in which they completed
// batches and exchanged; each replica completes its batches one after another, so it says which batch too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct OrderLog {
    /// The training: the numbers of its replicas and devices, those of all its processes, the seed, and the description
    /// of its policy's rule.
    int replicas = 0, devices = 0;
    std::uint64_t seed = 0;
    std::string rule{};
    /// The step of the first batch; later ones follow.
    std::int64_t first_step = 0;
    std::vector<std::uint16_t> claims{}, turns{};
    /// The file that it was read from, which errors name; empty for the log of a run. It is not compared.
    std::string file{};

    /// The step after the last complete step.
    [[nodiscard]] std::int64_t end_step() const {
        return replicas == 0 ? first_step : first_step + static_cast<std::int64_t>(turns.size()) / replicas;
    }
    bool operator==(const OrderLog& other) const {
        return replicas == other.replicas && devices == other.devices && seed == other.seed && rule == other.rule &&
               first_step == other.first_step && claims == other.claims && turns == other.turns;
    }
};

/// Throws DataError unless a log is one that a run can have: each replica completes a batch only after it has begun it,
/// and a device computes one batch after another.
[[gnu::cold]] void require_valid(const OrderLog& log);

class Order {
public:
    enum class Kind : std::uint8_t { free, round_robin, replay };

    [[nodiscard]] static Order free() { return {}; }
    [[nodiscard]] static Order round_robin() {
        Order order;
        order.kind_ = Kind::round_robin;
        return order;
    }
    /// Throws DataError for a log that no run can have.
    [[nodiscard]] static Order replay(OrderLog log) {
        require_valid(log);
        Order order;
        order.kind_ = Kind::replay;
        order.log_ = std::make_shared<const OrderLog>(std::move(log));
        return order;
    }

    [[nodiscard]] Kind kind() const { return kind_; }
    /// Null unless it is a replay.
    [[nodiscard]] const OrderLog* log() const { return log_.get(); }
    [[nodiscard]] std::string description() const {
        static constexpr const char* names[] = {"in free order", "round robin", "as an order log says"};
        return names[static_cast<int>(kind_)];
    }

private:
    Kind kind_ = Kind::free;
    std::shared_ptr<const OrderLog> log_;
};

namespace impl {

/// The device of a replica, with all of a process's replicas in contiguous blocks.
[[nodiscard]] constexpr int device_of_replica(int replica, int replicas, int devices) {
    return static_cast<int>(((static_cast<std::int64_t>(replica) + 1) * devices - 1) / replicas);
}

}  // namespace impl

inline void require_valid(const OrderLog& log) {
    require<DataError>(log.replicas >= 1 && log.replicas <= 65535 && log.devices >= 1 && log.devices <= log.replicas,
                       "an order log cannot be of ", log.replicas, " replicas on ", log.devices, " devices");
    // So that the number of a batch cannot overflow.
    constexpr std::int64_t largest = std::int64_t{1} << 40;
    require<DataError>(log.first_step >= 0 && log.first_step <= largest, "an order log begins at step 0 to ", largest,
                       ", not at step ", log.first_step);
    const std::size_t batches = log.claims.size();
    require<DataError>(batches == log.turns.size() && batches % static_cast<std::size_t>(log.replicas) == 0,
                       "an order log of ", log.replicas, " replicas has ", batches, " batches and ", log.turns.size(),
                       " turns, not those of whole steps");
    const auto in_range = [&](std::uint16_t replica) { return replica < log.replicas; };
    require<DataError>(std::ranges::all_of(log.claims, in_range) && std::ranges::all_of(log.turns, in_range),
                       "an order log of ", log.replicas, " replicas names another one");
    // Each device begins the next of its batches as early as it can: when the one before is complete, and the batch of
    // the same number has begun in the step before, as a source gives them in that order.
    const auto replicas = static_cast<std::size_t>(log.replicas);
    const auto device = [&](std::uint16_t r) {
        return static_cast<std::size_t>(impl::device_of_replica(r, log.replicas, log.devices));
    };
    std::vector<std::size_t> next(static_cast<std::size_t>(log.devices), batches), following(batches);
    for (std::size_t n = batches; n-- > 0;) following[n] = std::exchange(next[device(log.claims[n])], n);
    std::vector<int> busy(next.size(), -1);
    std::vector<bool> begun(batches);
    const auto begin_next = [&](std::size_t d) {
        while (busy[d] < 0 && next[d] < batches && (next[d] < replicas || begun[next[d] - replicas])) {
            const std::size_t n = std::exchange(next[d], following[next[d]]);
            busy[d] = log.claims[n];
            begun[n] = true;
            if (n + replicas >= batches) return;
            d = device(log.claims[n + replicas]);
        }
    };
    for (std::size_t d = 0; d < busy.size(); ++d) begin_next(d);
    for (std::size_t turn = 0; turn < batches; ++turn) {
        const std::uint16_t replica = log.turns[turn];
        require<DataError>(busy[device(replica)] == replica, "an order log lets replica ", replica,
                           " complete a batch, in turn ", turn, ", that it cannot have begun");
        busy[device(replica)] = -1;
        begin_next(device(replica));
    }
}

namespace impl {

/// Whether a valid log has no batch in flight before a step: those before it are the ones that are completed first.
[[nodiscard, gnu::cold]] inline bool is_complete_before(const OrderLog& log, std::int64_t step) {
    const auto batches = static_cast<std::size_t>((step - log.first_step) * log.replicas);
    std::vector<std::int64_t> in_flight(static_cast<std::size_t>(log.replicas));
    for (std::size_t n = 0; n < batches; ++n) {
        ++in_flight[log.claims[n]];
        --in_flight[log.turns[n]];
    }
    return std::ranges::all_of(in_flight, [](std::int64_t each) { return each == 0; });
}

/// Throws InvalidArgument, or DataError for a log that was read from a file, unless the log fits the training that is
/// given it. The message is about "the order log".
template <class... Parts>
void require_fitting(const OrderLog& log, bool fits, const Parts&... parts) {
    if (fits) return;
    const std::string message = text("the order log", parts...);
    if (log.file.empty()) throw InvalidArgument(message);
    throw DataError(text(log.file, ": ", message));
}

/// The same for the replicas, devices, seed and rule of a training: those of `own`.
[[gnu::cold]] inline void require_log_of(const OrderLog& own, const OrderLog& log, std::string_view use = {}) {
    require_fitting(
        log, log.replicas == own.replicas && log.devices == own.devices && log.seed == own.seed && log.rule == own.rule,
        use, " is of another training: it has ", log.replicas, " replicas on ", log.devices, " devices, seed ",
        log.seed, " and the rule ", log.rule, ", and this training has ", own.replicas, " on ", own.devices, ", seed ",
        own.seed, " and ", own.rule);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
