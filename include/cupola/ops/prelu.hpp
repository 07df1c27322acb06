// SPDX-License-Identifier: Apache-2.0
//
// ReLU with a trained slope (He et al. 2015), of one weight or one per channel:
//
//   y = x where x > 0, else w[c] x        dx = dy where x > 0, else w[c] dy
//   dw[c] = the sum of x dy over the positions of the channel where x is not above 0; of one weight, over all channels
//
// A trained factor is the same with `everywhere`, as if no x were above 0; backward then reads x for dw only. The sums
// are over the samples, then over the positions of an image, then over the channels, in this order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct PReluShape {
    std::int64_t channels = 0;
    bool weight_per_channel = false;
    bool everywhere = false;
};

namespace impl {

struct PReluForward {
    /// No value is above infinity, and no NaN is.
    static constexpr float everywhere = std::numeric_limits<float>::infinity();
    float limit;

    CUPOLA_HOST_DEVICE void operator()(float& y, float x, float weight) const {
        y = math::select(x > limit, x, weight * x);
    }
};
struct PReluBackward {
    CUPOLA_HOST_DEVICE void operator()(float& dx, float x, float dy, float weight) const {
        dx = math::select(x > 0.0F, dy, weight * dy);
    }
};
/// to = the one weight.
struct CopyWeight {
    const float* weight;

    CUPOLA_HOST_DEVICE void operator()(float& to) const { to = *weight; }
};

/// The terms of a weight's gradient, in rows of a sample.
template <class T>
struct PReluTerms {
    const T *x, *dy;
    std::int64_t width;
    float limit;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t n, std::int64_t i) const {
        const auto value = static_cast<float>(x[n * width + i]);
        return value > limit ? 0.0
                             : static_cast<double>(value) * static_cast<double>(static_cast<float>(dy[n * width + i]));
    }
};
struct MatrixTerms {
    const float* from;
    std::int64_t width;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t n, std::int64_t c) const {
        return static_cast<double>(from[n * width + c]);
    }
};

}  // namespace impl

namespace ops {

/// Made as `PRelu(build, shape)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class PRelu {
public:
    PRelu(const BuildContext<Device, T>& build, const PReluShape& shape)
        : shape_(shape),
          limit_(shape.everywhere ? impl::PReluForward::everywhere : 0.0F),
          batch_(build.batch),
          features_(build.input.size()),
          weights_(shape.weight_per_channel ? shape.channels : 1),
          trains_(build.training && build.parameter_gradients) {}

    [[nodiscard]] MemoryNeeds needs() const {
        constexpr auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); };
        return {.packed = shape_.weight_per_channel ? 0 : bytes(shape_.channels),
                .scratch = trains_ ? bytes(features_ + shape_.channels + weights_) : 0};
    }

    void prepare(const ForwardArgs<Device, T>& args) const {
        if (shape_.weight_per_channel) return;
        for_each_element(args.context, shape_.channels, impl::CopyWeight{args.parameters[0]},
                         reinterpret_cast<float*>(args.packed));
    }

    void forward(const ForwardArgs<Device, T>& args) const { weigh(args, args.input, args.output); }

    void backward(const BackwardArgs<Device, T>& args) const {
        const T* const dy = args.output_gradient;
        if (args.parameter_gradients[0] != nullptr) add_up(args, dy);
        if (args.input_gradient == nullptr) return;
        if (shape_.everywhere) {
            weigh(args, dy, args.input_gradient);
        } else {
            for_each_in_rows(args.context, rows(), shape_.channels, impl::PReluBackward{}, matrix(args.input_gradient),
                             matrix(args.input), matrix(dy), weights(args));
        }
    }

private:
    [[nodiscard]] std::int64_t rows() const { return batch_ * (features_ / shape_.channels); }
    template <class E>
    [[nodiscard]] Rows<E> matrix(E* first) const {
        return {first, shape_.channels};
    }
    [[nodiscard]] Rows<const float> weights(const ForwardArgs<Device, T>& args) const {
        return {shape_.weight_per_channel ? args.parameters[0] : reinterpret_cast<const float*>(args.packed), 0};
    }

    void weigh(const ForwardArgs<Device, T>& args, const T* from, T* to) const {
        for_each_in_rows(args.context, rows(), shape_.channels, impl::PReluForward{limit_}, matrix(to), matrix(from),
                         weights(args));
    }

    void add_up(const BackwardArgs<Device, T>& args, const T* dy) const {
        auto* const of_features = reinterpret_cast<float*>(args.scratch);
        float *const of_channels = of_features + features_, *const of_weights = of_channels + shape_.channels;
        sum_columns(args.context, batch_, features_, impl::PReluTerms<T>{args.input, dy, features_, limit_},
                    of_features);
        float* const gradient = args.parameter_gradients[0];
        float* const to = args.accumulate ? of_weights : gradient;
        sum_columns(args.context, features_ / shape_.channels, shape_.channels,
                    impl::MatrixTerms{of_features, shape_.channels}, shape_.weight_per_channel ? to : of_channels);
        if (!shape_.weight_per_channel)
            sum_columns(args.context, shape_.channels, 1, impl::MatrixTerms{of_channels, 1}, to);
        if (args.accumulate)
            for_each_element(args.context, weights_, impl::AddElement{}, gradient, static_cast<const float*>(to));
    }

    PReluShape shape_;
    float limit_;
    std::int64_t batch_, features_, weights_;
    bool trains_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
