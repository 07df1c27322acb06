// SPDX-License-Identifier: Apache-2.0
//
// The ends of a plan: the batch enters and the outputs leave as float, and so do their gradients. A plan whose
// activations have another type keeps copies and converts here; a plan in float passes the pointers through.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/net/memory_plan.hpp>
#include <cupola/ops/convert.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// An output of a plan: its value among those of the nodes, its elements, and, in a type other than float, its copy's
/// offset.
struct PlanOutput {
    std::size_t value = 0;
    std::int64_t elements = 0;
    std::size_t offset = 0;
};

template <class Device, class T>
class PlanEnds {
    using Context = typename Device::Context;
    using Convert = ops::Convert<Device>;

public:
    PlanEnds() = default;
    /// `inputs` is the number of elements of the batch.
    PlanEnds(const PlannedEnds& places, std::int64_t inputs) : places_(places), inputs_(inputs) {}
    void bind(std::byte* memory) { memory_ = memory; }
    [[nodiscard]] std::size_t bytes() const { return places_.bytes; }

    [[nodiscard]] T* place_of_batch() const { return inputs_ == 0 ? nullptr : reinterpret_cast<T*>(memory_); }
    [[nodiscard]] const T* batch(const float*) const { return reinterpret_cast<const T*>(memory_); }
    const T* convert_batch(Context& context, const float* batch) const {
        // Joined with the conversions of the weights, which are queued before.
        Convert::run_joined(context, batch, reinterpret_cast<T*>(memory_), inputs_);
        return this->batch(batch);
    }
    [[nodiscard]] const float* output(const PlanOutput& end, const T*) const {
        return floats(places_.output + end.offset);
    }
    void convert_output(Context& context, const PlanOutput& end, const T* output) const {
        Convert::run(context, output, floats(places_.output + end.offset), end.elements);
    }
    [[nodiscard]] float* output_gradient(const PlanOutput& end, T*) const {
        return floats(places_.output_gradient + end.offset);
    }
    void convert_output_gradient(Context& context, const PlanOutput& end, T* to) const {
        Convert::run(context, static_cast<const float*>(output_gradient(end, to)), to, end.elements);
    }
    [[nodiscard]] const float* input_gradient(const T*) const { return floats(places_.input_gradient); }
    void convert_input_gradient(Context& context, const T* from) const {
        Convert::run(context, from, floats(places_.input_gradient), inputs_);
    }

private:
    [[nodiscard]] float* floats(std::size_t offset) const { return reinterpret_cast<float*>(memory_ + offset); }

    PlannedEnds places_;
    std::int64_t inputs_ = 0;
    std::byte* memory_ = nullptr;
};

template <class Device>
class PlanEnds<Device, float> {
    using Context = typename Device::Context;

public:
    PlanEnds() = default;
    PlanEnds(const PlannedEnds&, std::int64_t) {}
    void bind(std::byte*) {}
    [[nodiscard]] std::size_t bytes() const { return 0; }

    [[nodiscard]] float* place_of_batch() const { return nullptr; }
    [[nodiscard]] const float* batch(const float* batch) const { return batch; }
    const float* convert_batch(Context&, const float* batch) const { return batch; }
    [[nodiscard]] const float* output(const PlanOutput&, const float* own) const { return own; }
    void convert_output(Context&, const PlanOutput&, const float*) const {}
    [[nodiscard]] float* output_gradient(const PlanOutput&, float* own) const { return own; }
    void convert_output_gradient(Context&, const PlanOutput&, float*) const {}
    [[nodiscard]] const float* input_gradient(const float* own) const { return own; }
    void convert_input_gradient(Context&, const float*) const {}
};

}}}  // namespace cupola::CUPOLA_ABI::impl
