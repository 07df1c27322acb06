// SPDX-License-Identifier: Apache-2.0
//
// CentreExchange: what a replica of an asynchronous training does with the common centre, one replica after another:
// the rule of Asynchronous<Elastic>, Asynchronous<Downpour> and Hogwild. Included by the header of each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/kinds/order.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Arenas with the layout of the parameters, in the host's memory. `centre` is common, the others are of one replica.
struct ExchangeArenas {
    float* parameters = nullptr;
    /// The row of its gradient, which is free after the update.
    float* row = nullptr;
    /// What the rule keeps between two exchanges; null unless keeps_values().
    float* kept = nullptr;
    float* centre = nullptr;
};

/// Members with a segment are called once for each segment, which is a part of one of the optimiser's update.
class CentreExchange {
public:
    CentreExchange() = default;
    CentreExchange(const CentreExchange&) = delete;
    CentreExchange& operator=(const CentreExchange&) = delete;
    virtual ~CentreExchange() = default;

    /// The number of batches of a replica from one exchange to the next.
    [[nodiscard]] virtual std::int64_t every() const = 0;
    /// Whether the replica exchanges with a batch, before which it computed `since` batches since its last exchange.
    [[nodiscard]] virtual bool is_due(std::int64_t since) const = 0;
    /// Whether the row takes the position of the replica before the update of a batch with an exchange. The optimiser's
    /// update must take a force then.
    [[nodiscard]] virtual bool takes_position() const { return false; }
    /// Whether a replica has one arena more, and whether its values are a part of the training's state.
    [[nodiscard]] virtual bool keeps_values() const { return false; }
    [[nodiscard]] virtual bool has_state() const { return keeps_values(); }
    /// If not 0, replicas do not exchange: in each step all compute a gradient with the centre, and the first so many
    /// of them update it. The other members have no effect then.
    [[nodiscard]] virtual int counted() const { return 0; }
    /// False for exchanges at the same time, of one element at a time.
    [[nodiscard]] virtual bool is_ordered() const { return true; }

    /// Before the passes of a batch, and before its update.
    virtual void before_passes(const ExchangeArenas&, const Segment&) const {}
    virtual void before_update(const ExchangeArenas&, const Segment&, std::int64_t /*since*/) const {}
    /// After the update of a batch with an exchange. If they are ordered, no other replica exchanges this segment.
    virtual void exchange(const ExchangeArenas&, const Segment&) const = 0;
    /// Where exchanges are not ordered: copies the centre to the row.
    virtual void read_centre(const ExchangeArenas&, const Segment&) const {}
};

/// How an asynchronous training runs; the members have the meaning of those of Asynchronous.
struct AsynchronousRun {
    std::int64_t ahead = 1;
    Order order{};
    std::shared_ptr<OrderLog> log{};
    /// The description of the rule, by which an order log is recognised.
    std::string rule{};
};

}}  // namespace cupola::CUPOLA_ABI
