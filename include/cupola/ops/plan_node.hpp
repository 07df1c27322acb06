// SPDX-License-Identifier: Apache-2.0
//
// An operation behind one interface, so that a plan is a plain list. A virtual call costs nanoseconds; a step has one
// call per layer and direction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Device, class T = float>
class PlanNode {
public:
    PlanNode() = default;
    PlanNode(const PlanNode&) = delete;
    PlanNode& operator=(const PlanNode&) = delete;
    virtual ~PlanNode() = default;
    [[nodiscard]] virtual MemoryNeeds needs() const = 0;
    [[nodiscard]] virtual OperationWork work(Direction) const { return {}; }
    /// Called when the node's parameters have changed, before the next forward.
    virtual void prepare(const ForwardArgs<Device, T>& args) = 0;
    virtual void forward(const ForwardArgs<Device, T>& args) = 0;
    virtual void backward(const BackwardArgs<Device, T>& args) = 0;
    /// The parts of the sums of its input gradient that `backward` can write; 0 if it cannot.
    [[nodiscard]] virtual std::int64_t gradient_sum_parts() const { return 0; }
    /// Whether `backward` reads the sums of its output gradient. An operation that would mask this gradient for a ReLU
    /// leaves the mask to the operation that sums.
    [[nodiscard]] virtual bool reads_gradient_sums() const { return false; }
    /// For an operation with ReducesStatistics; other operations reduce nothing.
    [[nodiscard]] virtual std::int64_t statistics_size() const { return 0; }
    virtual void write_sums(Direction, const BackwardArgs<Device, T>&, double* /*sums*/) {}
    virtual void apply_sums(Direction, const BackwardArgs<Device, T>&, const double* /*sums*/) {}
    virtual void merge_sums(Direction, std::span<const double* const> /*parts*/, double* /*merged*/) const {}
};

namespace impl {

template <class Device, class T, class Op>
class OperationNode : public PlanNode<Device, T> {
public:
    OperationNode(Op (*make)(const BuildContext<Device, T>&), const BuildContext<Device, T>& build)
        : op_(make(build)) {}
    template <class... Shapes>
    OperationNode(const BuildContext<Device, T>& build, const Shapes&... shapes) : op_(build, shapes...) {}
    [[nodiscard]] MemoryNeeds needs() const override { return memory_needs(op_); }
    [[nodiscard, gnu::cold]] OperationWork work([[maybe_unused]] Direction direction) const override {
        if constexpr (requires { op_.work(direction); }) return op_.work(direction);
        return {};
    }
    void prepare([[maybe_unused]] const ForwardArgs<Device, T>& args) override {
        if constexpr (requires { op_.prepare(args); }) op_.prepare(args);
    }
    void forward(const ForwardArgs<Device, T>& args) override { op_.forward(args); }
    void backward(const BackwardArgs<Device, T>& args) override {
        // A layer without a backward is rejected where it would be trained; its forward can still be run.
        if constexpr (HasBackward<Op, Device, T>) op_.backward(args);
    }
    [[nodiscard]] std::int64_t gradient_sum_parts() const override {
        if constexpr (requires { op_.gradient_sum_parts(); }) return op_.gradient_sum_parts();
        return 0;
    }
    [[nodiscard]] bool reads_gradient_sums() const override {
        if constexpr (requires { op_.reads_gradient_sums(); }) return op_.reads_gradient_sums();
        return false;
    }

protected:
    Op op_;
};

template <class Device, class T, class Op>
class ReducingNode final : public OperationNode<Device, T, Op> {
public:
    using OperationNode<Device, T, Op>::OperationNode;
    [[nodiscard]] std::int64_t statistics_size() const override { return this->op_.statistics_size(); }
    void write_sums(Direction direction, const BackwardArgs<Device, T>& args, double* sums) override {
        if (direction == Direction::forward) {
            this->op_.forward_statistics(args, sums);
        } else {
            this->op_.backward_statistics(args, sums);
        }
    }
    void apply_sums(Direction direction, const BackwardArgs<Device, T>& args, const double* sums) override {
        if (direction == Direction::forward) {
            this->op_.forward_apply(args, sums);
        } else {
            this->op_.backward_apply(args, sums);
        }
    }
    void merge_sums(Direction direction, std::span<const double* const> parts, double* merged) const override {
        if (direction == Direction::forward) {
            Op::merge_forward(parts, this->op_.statistics_size(), merged);
        } else {
            Op::merge_backward(parts, this->op_.statistics_size(), merged);
        }
    }
};

template <class Device, class T, class Op>
struct NodeTypeOf {
    using Type = OperationNode<Device, T, Op>;
};
template <class Device, class T, ReducesStatistics Op>
struct NodeTypeOf<Device, T, Op> {
    using Type = ReducingNode<Device, T, Op>;
};

/// The node of the operation that is made as `Op(build, shapes...)`: a separate function, because src.hpp compiles it
/// for each operation of `Host`.
template <class Op, class Device, class T, class... Shapes>
[[nodiscard, gnu::cold]] std::unique_ptr<PlanNode<Device, T>> node_of(const BuildContext<Device, T>& build,
                                                                      const Shapes&... shapes) {
    // Not make_unique, which would instantiate a second pointer type for each operation.
    return std::unique_ptr<PlanNode<Device, T>>(new typename NodeTypeOf<Device, T, Op>::Type(build, shapes...));
}

/// The node of the operation that `make` returns: an operation of a user's layer.
template <class Op, class Device, class T>
[[nodiscard]] std::unique_ptr<PlanNode<Device, T>> node_made_by(Op (*make)(const BuildContext<Device, T>&),
                                                                const BuildContext<Device, T>& build) {
    return std::unique_ptr<PlanNode<Device, T>>(new typename NodeTypeOf<Device, T, Op>::Type(make, build));
}

}  // namespace impl

template <class Device, class T = float>
using NodeMaker = std::unique_ptr<PlanNode<Device, T>> (*)(const BuildContext<Device, T>&);

}}  // namespace cupola::CUPOLA_ABI
