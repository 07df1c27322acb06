// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a plan: the batch enters and the output leaves as float, and so do their gradients. A plan whose
// activations have another type keeps copies and converts here; a plan in float passes the pointers through.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/net/memory_plan.hpp>
#include <cupola/ops/convert.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Device, class T>
class PlanEnds {
    using Context = typename Device::Context;
    using Convert = ops::Convert<Device>;

public:
    PlanEnds() = default;
    /// `inputs` and `outputs` are the numbers of elements of the batch and of the output.
    PlanEnds(const PlannedEnds& places, std::int64_t inputs, std::int64_t outputs)
        : places_(places), inputs_(inputs), outputs_(outputs) {}
    void bind(std::byte* memory) { memory_ = memory; }
    [[nodiscard]] std::size_t bytes() const { return places_.bytes; }

    [[nodiscard]] const T* batch(const float*) const { return reinterpret_cast<const T*>(memory_ + places_.batch); }
    const T* convert_batch(Context& context, const float* batch) const {
        Convert::run(context, batch, reinterpret_cast<T*>(memory_ + places_.batch), inputs_);
        return this->batch(batch);
    }
    const float* convert_output(Context& context, const T* output) const {
        Convert::run(context, output, floats(places_.output), outputs_);
        return floats(places_.output);
    }
    [[nodiscard]] float* output_gradient(T*) const { return floats(places_.output_gradient); }
    void convert_output_gradient(Context& context, T* to) const {
        Convert::run(context, static_cast<const float*>(floats(places_.output_gradient)), to, outputs_);
    }
    [[nodiscard]] const float* input_gradient(const T*) const { return floats(places_.input_gradient); }
    void convert_input_gradient(Context& context, const T* from) const {
        Convert::run(context, from, floats(places_.input_gradient), inputs_);
    }

private:
    [[nodiscard]] float* floats(std::size_t offset) const { return reinterpret_cast<float*>(memory_ + offset); }

    PlannedEnds places_;
    std::int64_t inputs_ = 0, outputs_ = 0;
    std::byte* memory_ = nullptr;
};

template <class Device>
class PlanEnds<Device, float> {
    using Context = typename Device::Context;

public:
    PlanEnds() = default;
    PlanEnds(const PlannedEnds&, std::int64_t, std::int64_t) {}
    void bind(std::byte*) {}
    [[nodiscard]] std::size_t bytes() const { return 0; }

    [[nodiscard]] const float* batch(const float* batch) const { return batch; }
    const float* convert_batch(Context&, const float* batch) const { return batch; }
    const float* convert_output(Context&, const float* output) const { return output; }
    [[nodiscard]] float* output_gradient(float* own) const { return own; }
    void convert_output_gradient(Context&, float*) const {}
    [[nodiscard]] const float* input_gradient(const float* own) const { return own; }
    void convert_input_gradient(Context&, const float*) const {}
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
