// SPDX-License-Identifier: Apache-2.0
//
// Softmax of rows of channels, or its logarithm:
//
//   y[c] = exp(x[c]) / sum over k of exp(x[k])      dx[c] = y[c] (dy[c] - sum over k of dy[k] y[k])
//   y[c] = x[c] - log(sum over k of exp(x[k]))      dx[c] = dy[c] - exp(y[c]) sum over k of dy[k]
//
// The largest value of a row is subtracted first, so no finite value overflows. Sums are in double. Backward reads the
// output.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct SoftmaxShape {
    std::int64_t channels = 0;
    /// Whether the result is the logarithm.
    bool logarithm = false;
};

namespace impl {

/// The formulas of a row (ops/rows.hpp).
template <class T, bool logarithm>
struct SoftmaxForward {
    std::int64_t width;
    const T* x;
    T* y;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width);
        const T* const from = x + n * width;
        T* const to = y + n * width;
        const float top = lanes.largest(count, [&](std::int64_t c) { return static_cast<float>(from[c]); }).value;
        const auto power = [&](std::int64_t c) {
            return static_cast<double>(math::exp(static_cast<float>(from[c]) - top));
        };
        const double total = sum_of_row(lanes, count, power);
        if constexpr (logarithm) {
            const double log_total = std::log(total);
            for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) {
                const double below = static_cast<double>(static_cast<float>(from[c])) - static_cast<double>(top);
                to[c] = T(static_cast<float>(below - log_total));
            }
        } else {
            for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
                to[c] = T(static_cast<float>(power(c) / total));
        }
    }
};

template <class T, bool logarithm>
struct SoftmaxBackward {
    std::int64_t width;
    const T *y, *dy;
    T* dx;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(width), first = n * width;
        const auto value = [&](std::int64_t c) { return static_cast<double>(static_cast<float>(y[first + c])); };
        const auto gradient = [&](std::int64_t c) { return static_cast<double>(static_cast<float>(dy[first + c])); };
        if constexpr (logarithm) {
            const double sum = sum_of_row(lanes, count, gradient);
            for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) {
                const auto p = static_cast<double>(math::exp(static_cast<float>(y[first + c])));
                dx[first + c] = T(static_cast<float>(gradient(c) - p * sum));
            }
        } else {
            const auto product = [&](std::int64_t c) { return gradient(c) * value(c); };
            const double sum = sum_of_row(lanes, count, product);
            for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
                dx[first + c] = T(static_cast<float>(value(c) * (gradient(c) - sum)));
        }
    }
};

}  // namespace impl

namespace ops {

/// Made as `Softmax(build, shape)`; defined for every device with rows (ops/rows.hpp).
template <class Device, class T>
class Softmax;

template <class Device, class T>
    requires(ComputesElements<Device, T> && ComputesRows<Device>)
class Softmax<Device, T> {
public:
    Softmax(const BuildContext<Device, T>& build, const SoftmaxShape& shape)
        : width_(shape.channels),
          rows_(build.batch * build.input.size() / shape.channels),
          logarithm_(shape.logarithm) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        if (logarithm_) {
            for_each_row(args.context, rows_, width_, impl::SoftmaxForward<T, true>{width_, args.input, args.output});
        } else {
            for_each_row(args.context, rows_, width_, impl::SoftmaxForward<T, false>{width_, args.input, args.output});
        }
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        if (logarithm_) {
            for_each_row(
                args.context, rows_, width_,
                impl::SoftmaxBackward<T, true>{width_, args.output, args.output_gradient, args.input_gradient});
        } else {
            for_each_row(
                args.context, rows_, width_,
                impl::SoftmaxBackward<T, false>{width_, args.output, args.output_gradient, args.input_gradient});
        }
    }

private:
    std::int64_t width_, rows_;
    bool logarithm_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
