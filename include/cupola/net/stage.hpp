// SPDX-License-Identifier: Apache-2.0
//
// An operation behind one interface, so that a plan is a plain list. A call through it costs nanoseconds; a step has
// one a layer and direction.
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

template <class Device, class T = float>
class Stage {
public:
    Stage() = default;
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;
    virtual ~Stage() = default;
    [[nodiscard]] virtual MemoryNeeds needs() const = 0;
    /// Called when the parameters have changed, before the next forward.
    virtual void prepare(const Pass<Device, T>& pass) = 0;
    virtual void forward(const Pass<Device, T>& pass) = 0;
    virtual void backward(const Pass<Device, T>& pass) = 0;
    /// For an operation with HasExchange; the others exchange nothing.
    [[nodiscard]] virtual std::int64_t exchange_size() const { return 0; }
    virtual void write_sums(Direction, const Pass<Device, T>&, double* /*sums*/) {}
    virtual void apply_sums(Direction, const Pass<Device, T>&, const double* /*sums*/) {}
    virtual void merge_sums(Direction, std::span<const double* const> /*parts*/, double* /*merged*/) const {}
};

namespace impl {

template <class Device, class T, class Op>
class StageOf : public Stage<Device, T> {
public:
    StageOf(Op (*make)(const Site<Device, T>&), const Site<Device, T>& site) : op_(make(site)) {}
    /// Of an operation that is made from more than a layer says.
    template <class... Shapes>
    StageOf(const Site<Device, T>& site, const Shapes&... shapes) : op_(site, shapes...) {}
    [[nodiscard]] MemoryNeeds needs() const override { return memory_needs(op_); }
    void prepare([[maybe_unused]] const Pass<Device, T>& pass) override {
        if constexpr (requires { op_.prepare(pass); }) op_.prepare(pass);
    }
    void forward(const Pass<Device, T>& pass) override { op_.forward(pass); }
    void backward(const Pass<Device, T>& pass) override {
        // A layer without a backward is refused where it would be trained; it can still be run forward.
        if constexpr (HasBackward<Op, Device, T>) op_.backward(pass);
    }

protected:
    Op op_;
};

template <class Device, class T, class Op>
class ExchangingStageOf final : public StageOf<Device, T, Op> {
public:
    using StageOf<Device, T, Op>::StageOf;
    [[nodiscard]] std::int64_t exchange_size() const override { return this->op_.exchange_size(); }
    void write_sums(Direction direction, const Pass<Device, T>& pass, double* sums) override {
        if (direction == Direction::forward) {
            this->op_.forward_statistics(pass, sums);
        } else {
            this->op_.backward_statistics(pass, sums);
        }
    }
    void apply_sums(Direction direction, const Pass<Device, T>& pass, const double* sums) override {
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

template <class Device, class T, class Op>
struct StageTypeOf {
    using Type = StageOf<Device, T, Op>;
};
template <class Device, class T, HasExchange Op>
struct StageTypeOf<Device, T, Op> {
    using Type = ExchangingStageOf<Device, T, Op>;
};

/// The stage of an operation: a function of its own, so that all layers with one operation share it.
template <class Op, class Device, class T>
[[nodiscard]] std::unique_ptr<Stage<Device, T>> stage_of(Op (*make)(const Site<Device, T>&),
                                                         const Site<Device, T>& site) {
    // Not make_unique, which would instantiate a second pointer type for each operation.
    return std::unique_ptr<Stage<Device, T>>(new typename StageTypeOf<Device, T, Op>::Type(make, site));
}

}  // namespace impl

/// Makes the stage of layer `L`.
template <class L, class Device, class T = float>
[[nodiscard]] std::unique_ptr<Stage<Device, T>> make_stage(const Site<Device, T>& site) {
    using Op = OperationOf<L, Device, T>;
    return impl::stage_of<Op, Device, T>([](const Site<Device, T>& s) -> Op { return L::operation(s); }, site);
}

template <class Device, class T = float>
using StageMaker = std::unique_ptr<Stage<Device, T>> (*)(const Site<Device, T>&);

}  // namespace cupola::inline CUPOLA_ABI
