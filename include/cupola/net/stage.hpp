// SPDX-License-Identifier: Apache-2.0
//
// An operation behind one interface, so that a plan is a plain list. A call through it costs nanoseconds; a step has one
// a layer and direction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <cupola/layers/layer.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

/// A direction of the pass.
enum class Direction : std::uint8_t { forward, backward };

template <class Device>
class Stage {
public:
    Stage() = default;
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;
    virtual ~Stage() = default;
    [[nodiscard]] virtual MemoryNeeds needs() const = 0;
    /// Called when the parameters have changed, before the next forward.
    virtual void prepare(const Pass<Device>& pass) = 0;
    virtual void forward(const Pass<Device>& pass) = 0;
    virtual void backward(const Pass<Device>& pass) = 0;
    /// For an operation with HasExchange; the others exchange nothing.
    [[nodiscard]] virtual std::int64_t exchange_size() const { return 0; }
    virtual void write_sums(Direction, const Pass<Device>&, double* /*sums*/) {}
    virtual void apply_sums(Direction, const Pass<Device>&, const double* /*sums*/) {}
    virtual void merge_sums(Direction, std::span<const double* const> /*parts*/, double* /*merged*/) const {}
};

namespace impl {

template <class Device, class Op>
class StageOf : public Stage<Device> {
public:
    StageOf(Op (*make)(const Site<Device>&), const Site<Device>& site) : op_(make(site)) {}
    [[nodiscard]] MemoryNeeds needs() const override { return memory_needs(op_); }
    void prepare([[maybe_unused]] const Pass<Device>& pass) override {
        if constexpr (requires { op_.prepare(pass); }) op_.prepare(pass);
    }
    void forward(const Pass<Device>& pass) override { op_.forward(pass); }
    void backward(const Pass<Device>& pass) override {
        // A layer without a backward is refused where it would be trained; it can still be run forward.
        if constexpr (HasBackward<Op, Device>) op_.backward(pass);
    }

protected:
    Op op_;
};

template <class Device, class Op>
class ExchangingStageOf final : public StageOf<Device, Op> {
public:
    using StageOf<Device, Op>::StageOf;
    [[nodiscard]] std::int64_t exchange_size() const override { return this->op_.exchange_size(); }
    void write_sums(Direction direction, const Pass<Device>& pass, double* sums) override {
        if (direction == Direction::forward) {
            this->op_.forward_statistics(pass, sums);
        } else {
            this->op_.backward_statistics(pass, sums);
        }
    }
    void apply_sums(Direction direction, const Pass<Device>& pass, const double* sums) override {
        if (direction == Direction::forward) {
            this->op_.forward_apply(pass, sums);
        } else {
            this->op_.backward_apply(pass, sums);
        }
    }
    void merge_sums(Direction direction, std::span<const double* const> parts, double* merged) const override {
        if (direction == Direction::forward) {
            Op::merge_forward(parts, this->op_.exchange_size(), merged);
        } else {
            Op::merge_backward(parts, this->op_.exchange_size(), merged);
        }
    }
};

template <class Device, class Op>
struct StageTypeOf {
    using Type = StageOf<Device, Op>;
};
template <class Device, HasExchange Op>
struct StageTypeOf<Device, Op> {
    using Type = ExchangingStageOf<Device, Op>;
};

}  // namespace impl

/// Makes the stage of layer `L`.
template <class L, class Device>
[[nodiscard]] std::unique_ptr<Stage<Device>> make_stage(const Site<Device>& site) {
    using Op = OperationOf<L, Device>;
    // Not make_unique, which would instantiate a second pointer type for each operation.
    return std::unique_ptr<Stage<Device>>(
        new typename impl::StageTypeOf<Device, Op>::Type([](const Site<Device>& s) -> Op { return L::operation(s); }, site));
}

template <class Device>
using StageMaker = std::unique_ptr<Stage<Device>> (*)(const Site<Device>&);

}  // namespace cupola::inline CUPOLA_ABI
