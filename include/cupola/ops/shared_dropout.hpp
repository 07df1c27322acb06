// SPDX-License-Identifier: Apache-2.0
//
// Dropout of elements that share a random number: those of a channel of a sample (Tompson et al. 2015), or all of a
// sample (stochastic depth, Huang et al. 2016). In training
//
//   y[n, p, c] = 0 with probability `rate`, else x[n, p, c] / (1 - rate)
//
// for all positions p together, and without `per_channel` for all channels too; outside training it is the identity.
// The numbers are those of ops/dropout.hpp for a sample of one element per channel, or of one. Forward keeps the
// factors, a float per channel of a sample, for backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/ops/dropout.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct SharedDropoutShape {
    double rate = 0;
    bool per_channel = false;
};

namespace impl {

/// Row n: to[n, c] = from[n].
struct RepeatInRow {
    const float* from;
    float* to;
    std::int64_t width;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) to[n * width + c] = from[n];
    }
};
/// What is dropped is 0 even where it was not finite.
struct DropByFactor {
    CUPOLA_HOST_DEVICE void operator()(float& to, float from, float factor) const {
        to = math::select(factor > 0.0F, from * factor, 0.0F);
    }
};

}  // namespace impl

namespace ops {

/// Made as `SharedDropout(build, shape)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class SharedDropout {
public:
    SharedDropout(const BuildContext<Device, T>& build, const SharedDropoutShape& shape)
        : batch_(build.batch),
          channels_(build.output.channels()),
          positions_(build.output.size() / channels_),
          layer_(build.layer),
          rate_(static_cast<float>(shape.rate)),
          per_channel_(shape.per_channel),
          has_backward_(build.training),
          inference_(build.inference) {}

    /// A pass of training draws factors also where no backward follows: in a frozen layer, in one whose input has no
    /// gradient, and where values are inspected. They are then in scratch memory.
    [[nodiscard]] MemoryNeeds needs() const {
        if (inference_ || rate_ == 0) return {};
        return {.saved = has_backward_ ? factor_bytes() : 0,
                .scratch = drawn_bytes() + (has_backward_ ? 0 : factor_bytes())};
    }

    void forward(const ForwardArgs<Device, T>& args) const {
        if (args.training && rate_ > 0) draw(args);
        apply(args, args.input, args.output);
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient != nullptr) apply(args, args.output_gradient, args.input_gradient);
    }

private:
    void draw(const ForwardArgs<Device, T>& args) const {
        const std::int64_t numbers = per_channel_ ? channels_ : 1;
        float* const factors = factors_of(args);
        auto* const drawn = per_channel_ ? factors : reinterpret_cast<float*>(args.scratch);
        fill(args.context, std::span(drawn, static_cast<std::size_t>(batch_ * numbers)), 1.0F);
        drop_elements(args.context,
                      impl::DropoutPass{batch_, numbers, rate_, 1.0F / (1.0F - rate_), args.seed, layer_, args.step,
                                        args.first_sample},
                      static_cast<const float*>(drawn), drawn);
        if (!per_channel_) for_each_row(args.context, batch_, channels_, impl::RepeatInRow{drawn, factors, channels_});
    }

    void apply(const ForwardArgs<Device, T>& args, const T* from, T* to) const {
        const std::int64_t rows = batch_ * positions_;
        if (!args.training || rate_ == 0)
            return for_each_element(args.context, rows * channels_, impl::CopyElement{}, to, from);
        for_each_in_rows(args.context, rows, channels_, impl::DropByFactor{}, Rows<T>{to, channels_},
                         Rows<const T>{from, channels_},
                         RepeatedRows<const float>{factors_of(args), channels_, positions_});
    }

    [[nodiscard]] std::size_t factor_bytes() const {
        return static_cast<std::size_t>(batch_ * channels_) * sizeof(float);
    }
    [[nodiscard]] std::size_t drawn_bytes() const {
        return per_channel_ ? 0 : aligned(static_cast<std::size_t>(batch_) * sizeof(float));
    }
    [[nodiscard]] float* factors_of(const ForwardArgs<Device, T>& args) const {
        return reinterpret_cast<float*>(has_backward_ ? args.saved : args.scratch + drawn_bytes());
    }

    std::int64_t batch_, channels_, positions_;
    std::uint32_t layer_;
    float rate_;
    bool per_channel_, has_backward_, inference_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
