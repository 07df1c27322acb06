// SPDX-License-Identifier: Apache-2.0
//
// Stopwatches, which tell a timer when a node of the network, or a part of a step around it, begins and ends on a
// device's thread. Without a timer a training only tests a pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A part of a step outside the nodes of the network.
enum class StepPart : std::uint8_t {
    data,            ///< waiting for the batch
    packing,         ///< packing of the weights, once per step
    loss,            ///< the loss of the data, and its gradient
    regularization,  ///< the regularisers' losses
    waiting,         ///< waiting for the other devices
    averaging,       ///< averaging of the replicas' gradients, and the check that the average is finite
    optimizer,
    moving_average,
    statistics,  ///< the running statistics
};
inline constexpr std::size_t step_parts = 9;

class StepTimer {
public:
    explicit StepTimer(std::size_t nodes) : nodes_(nodes) {}

    [[nodiscard]] std::size_t entry(StepPart part) const { return static_cast<std::size_t>(part); }
    [[nodiscard]] std::size_t entry(Direction direction, std::size_t node) const {
        return step_parts + (direction == Direction::forward ? 0 : nodes_) + node;
    }
    [[nodiscard]] virtual double begin(std::size_t entry) = 0;
    virtual void end(std::size_t entry, double begun) = 0;
    virtual void set_work(std::size_t entry, const OperationWork& work, std::int64_t samples) = 0;

protected:
    ~StepTimer() = default;
    std::size_t nodes_;
};

/// Its lifetime is that of a part of a step. Without a timer it does nothing.
class Stopwatch {
public:
    template <class... PartOrNode>
    explicit Stopwatch(StepTimer* timer, PartOrNode... of) : timer_(timer) {
        if (timer_ != nullptr) begun_ = timer_->begin(entry_ = timer_->entry(of...));
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
        if (timer_ != nullptr) timer_->end(entry_, begun_);
    }

private:
    StepTimer* timer_;
    std::size_t entry_ = 0;
    double begun_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
