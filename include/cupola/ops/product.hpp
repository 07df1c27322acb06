// SPDX-License-Identifier: Apache-2.0
//
// The product of two tensors:
//
//   y[n, p, c] = a[n, p, c] b[n, p, c],    or a[n, p, c] b[n, c] where one of them, here b, has one position per sample
//
//   da[n, p, c] = dy[n, p, c] b[n, c],     db[n, c] = sum over p of dy[n, p, c] a[n, p, c]
//
// `b` is the second input; its gradient is added where BuildContext::adds_second_gradient is set. Backward reads both
// inputs. The sum over the positions is of parts of 64 positions in float, which are added in their order in double.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct ProductFormula {
    CUPOLA_HOST_DEVICE void operator()(float& product, float a, float b) const { product = a * b; }
};
struct AddProductFormula {
    CUPOLA_HOST_DEVICE void operator()(float& sum, float a, float b) const { sum += a * b; }
};

/// The parts in which the positions of a sample are summed.
inline constexpr std::int64_t positions_per_part = 64;
[[nodiscard]] constexpr std::int64_t parts_of_positions(std::int64_t positions) {
    return (positions + positions_per_part - 1) / positions_per_part;
}

/// Row r = n parts + k: sums[r, c] = sum over the positions p of part k of a[n, p, c] b[n, p, c].
template <class T>
struct PartialProductSums {
    const T *a, *b;
    float* sums;
    std::int64_t channels, positions, parts;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t r) const {
        const std::int64_t count = lanes.count(channels), begin = r % parts * positions_per_part,
                           left = positions - begin, here = left < positions_per_part ? left : positions_per_part,
                           first = (r / parts * positions + begin) * channels;
        std::int64_t c = lanes.begin();
        if constexpr (Lanes::step == 1) {  // a cache line or half of it, for a vectorised loop
            constexpr int at_once = 16;
            for (; c + at_once <= count; c += at_once) add<at_once>(first + c, here, sums + r * channels + c);
        }
        for (; c < count; c += Lanes::step) add<1>(first + c, here, sums + r * channels + c);
    }

private:
    template <int n>
    CUPOLA_HOST_DEVICE void add(std::int64_t at, std::int64_t rows, float* to) const {
        float sum[static_cast<std::size_t>(n)] = {};
        for (std::int64_t p = 0; p < rows; ++p, at += channels) {
            for (int i = 0; i < n; ++i) sum[i] += static_cast<float>(a[at + i]) * static_cast<float>(b[at + i]);
        }
        for (int i = 0; i < n; ++i) to[i] = sum[i];
    }
};

/// Row n: to[n, c] = the sum of parts[n, k, c] over k, or that is added to it.
template <class T>
struct SumOfParts {
    const float* sums;
    T* to;
    std::int64_t channels, parts;
    bool adds;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(channels);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) {
            T& result = to[n * channels + c];
            double sum = adds ? static_cast<double>(static_cast<float>(result)) : 0.0;
            for (std::int64_t k = 0; k < parts; ++k) sum += static_cast<double>(sums[(n * parts + k) * channels + c]);
            result = T(static_cast<float>(sum));
        }
    }
};

}  // namespace impl

namespace ops {

/// Made as `Product(build)`. The inputs have the extents of the output, or those of one of its positions.
template <class Device, class T>
    requires ComputesElements<Device, T>
class Product {
public:
    explicit Product(const BuildContext<Device, T>& build)
        : batch_(build.batch),
          channels_(build.output.channels()),
          positions_(build.output.size() / channels_),
          repeats_first_(build.input.size() < build.output.size()),
          repeats_second_(build.second_input.size() < build.output.size()),
          adds_(build.adds_second_gradient),
          training_(build.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        const bool sums = training_ && (repeats_first_ || repeats_second_);
        const std::int64_t parts = sums ? batch_ * impl::parts_of_positions(positions_) : 0;
        return {.scratch = static_cast<std::size_t>(parts * channels_) * sizeof(float)};
    }

    void forward(const ForwardArgs<Device, T>& args) const {
        if (repeats_first_) {
            multiply(args.context, impl::ProductFormula{}, args.output, args.second_input, args.input, true);
        } else {
            multiply(args.context, impl::ProductFormula{}, args.output, args.input, args.second_input, repeats_second_);
        }
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        const auto write = [&](T* to, bool repeated, const T* other, bool other_repeated, bool adds) {
            if (to == nullptr) return;
            if (repeated) {
                sum_positions(args, other, to, adds);
            } else if (adds) {
                multiply(args.context, impl::AddProductFormula{}, to, args.output_gradient, other, other_repeated);
            } else {
                multiply(args.context, impl::ProductFormula{}, to, args.output_gradient, other, other_repeated);
            }
        };
        write(args.input_gradient, repeats_first_, args.second_input, repeats_second_, false);
        write(args.second_input_gradient, repeats_second_, args.input, repeats_first_, adds_);
    }

private:
    /// to = a b, where `b` may have one position per sample.
    template <class Formula>
    void multiply(const typename Device::Context& context, const Formula& formula, T* to, const T* a, const T* b,
                  bool repeats) const {
        const std::int64_t rows = batch_ * positions_;
        if (repeats) {
            for_each_in_rows(context, rows, channels_, formula, Rows<T>{to, channels_}, Rows<const T>{a, channels_},
                             RepeatedRows<const T>{b, channels_, positions_});
        } else {
            for_each_element(context, rows * channels_, formula, to, a, b);
        }
    }

    /// to = the sum over the positions of each sample of the output's gradient times `other`.
    void sum_positions(const BackwardArgs<Device, T>& args, const T* other, T* to, bool adds) const {
        const std::int64_t parts = impl::parts_of_positions(positions_);
        auto* const sums = reinterpret_cast<float*>(args.scratch);
        for_each_row(args.context, batch_ * parts, channels_ * impl::positions_per_part,
                     impl::PartialProductSums<T>{args.output_gradient, other, sums, channels_, positions_, parts});
        for_each_row(args.context, batch_, channels_, impl::SumOfParts<T>{sums, to, channels_, parts, adds});
    }

    std::int64_t batch_, channels_, positions_;
    bool repeats_first_, repeats_second_, adds_, training_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
