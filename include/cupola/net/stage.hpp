// SPDX-License-Identifier: Apache-2.0
//
// An operation behind one interface, so that a plan is a plain list. A call through it costs nanoseconds; a step has one
// a layer and direction.
#pragma once

#include <memory>
#include <utility>

#include <cupola/layers/layer.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

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
};

namespace impl {

template <class Device, class Op>
class StageOf final : public Stage<Device> {
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

private:
    Op op_;
};

}  // namespace impl

/// Makes the stage of layer `L`.
template <class L, class Device>
[[nodiscard]] std::unique_ptr<Stage<Device>> make_stage(const Site<Device>& site) {
    using Op = OperationOf<L, Device>;
    // Not make_unique, which would instantiate a second pointer type for each operation.
    return std::unique_ptr<Stage<Device>>(
        new impl::StageOf<Device, Op>([](const Site<Device>& s) -> Op { return L::operation(s); }, site));
}

template <class Device>
using StageMaker = std::unique_ptr<Stage<Device>> (*)(const Site<Device>&);

}  // namespace cupola::inline CUPOLA_ABI
