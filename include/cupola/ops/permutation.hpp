// SPDX-License-Identifier: Apache-2.0
//
// Permutation of the axes of a sample: axis i of the output is axis axes[i] of the input.
//
//   y[n, i_0, .., i_r] = x[n, j_0, .., j_r]    with j_axes[k] = i_k
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Extents are below 2^30.
struct PermutationShape {
    Shape input;
    std::array<std::size_t, max_rank> axes{};

    [[nodiscard]] constexpr Shape output() const {
        Shape result = input;
        for (std::size_t i = 0; i < input.rank; ++i) result.extents[i] = input.extents[axes[i]];
        return result;
    }
    [[nodiscard]] constexpr PermutationShape inverse() const {
        PermutationShape result{output(), {}};
        for (std::size_t i = 0; i < input.rank; ++i) result.axes[axes[i]] = i;
        return result;
    }
};

namespace impl {

/// The formula of a row (ops/rows.hpp): the last axis of the output at one place of its other axes.
template <class T>
struct PermutedRow {
    PermutedRow(const PermutationShape& shape, const T* read, T* written)
        : sample(shape.input.size()), from(read), to(written) {
        static_assert(max_rank == 4);
        const std::size_t rank = shape.input.rank;
        std::int64_t input_strides[max_rank] = {};
        std::int64_t step = 1;
        for (std::size_t i = rank; i-- > 0;) {
            input_strides[i] = step;
            step *= shape.input.extents[i];
        }
        const Shape output = shape.output();
        // Axes that a sample does not have come first, with an extent of 1.
        for (std::size_t i = 0; i < rank; ++i) strides[max_rank - rank + i] = input_strides[shape.axes[i]];
        const auto divisor = [&](std::size_t back) {
            return Divisor(rank > back ? output.extents[rank - 1 - back] : 1);
        };
        by_first = divisor(3);
        by_second = divisor(2);
        by_third = divisor(1);
        width = output.extents[rank - 1];
    }

    std::int64_t sample, width = 1;
    std::int64_t strides[max_rank] = {};
    Divisor by_first, by_second, by_third;
    const T* from;
    T* to;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const Divisor::Parts third = by_third.divide(n), second = by_second.divide(third.quotient),
                             first = by_first.divide(second.quotient);
        const T* const source = from + first.quotient * sample + first.remainder * strides[0] +
                                second.remainder * strides[1] + third.remainder * strides[2];
        const std::int64_t count = lanes.count(width);
        for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) to[n * width + c] = source[c * strides[3]];
    }
};

}  // namespace impl

namespace ops {

/// Made as `Permutation(build, shape)`; defined for every device with rows (ops/rows.hpp).
template <class Device, class T>
class Permutation;

template <class Device, class T>
    requires(ComputesElements<Device, T> && ComputesRows<Device>)
class Permutation<Device, T> {
public:
    Permutation(const BuildContext<Device, T>& build, const PermutationShape& shape)
        : shape_(shape), elements_(build.batch * shape.input.size()) {}

    void forward(const ForwardArgs<Device, T>& args) const { permute(args, shape_, args.input, args.output); }
    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        permute(args, shape_.inverse(), args.output_gradient, args.input_gradient);
    }

private:
    void permute(const ForwardArgs<Device, T>& args, const PermutationShape& shape, const T* from, T* to) const {
        const impl::PermutedRow<T> row(shape, from, to);
        for_each_row(args.context, elements_ / row.width, row.width, row);
    }

    PermutationShape shape_;
    std::int64_t elements_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
