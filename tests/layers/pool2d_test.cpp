// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/avg_pool2d.hpp, cupola/layers/max_pool2d.hpp, cupola/ops/pooling.hpp
//
// MaxPool2d and AvgPool2d: extents are known from the type, and its options reach the operation.
#include "../test.hpp"

#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/max_pool2d.hpp>

#include "../reference/pooling.hpp"
#include "layer_run.hpp"

namespace {

static_assert(MaxPool2d<3, 2>::output(Shape{24, 24, 64}).shape == Shape{12, 12, 64});
static_assert(MaxPool2d<3, 2>::output(Shape{7, 9, 5}).shape == Shape{4, 5, 5});
static_assert(MaxPool2d<3, 2, valid>::output(Shape{24, 24, 64}).shape == Shape{11, 11, 64});
static_assert(MaxPool2d<2>::output(Shape{8, 6, 3}).shape == Shape{4, 3, 3}, "the stride is the window's unless named");
static_assert(AvgPool2d<6>::output(Shape{6, 6, 10}).shape == Shape{1, 1, 10});
static_assert(AvgPool2d<2, 2, valid>::output(Shape{7, 5, 3}).shape == Shape{3, 2, 3});
static_assert(MaxPool2d<3, 2, pad(1)>::output(Shape{112, 112, 64}).shape == Shape{56, 56, 64}, "ResNet-18's");
static_assert(MaxPool2d<3, 2, pad(1)>::output(Shape{7, 9, 5}).shape == Shape{4, 5, 5});
static_assert(MaxPool2d<2, 2, pad(1)>::output(Shape{7, 8, 5}).shape == Shape{4, 5, 5}, "rounded down");
static_assert(MaxPool2d<3, 2, pad(0)>::output(Shape{24, 24, 64}).shape == Shape{11, 11, 64}, "as valid");
static_assert(MaxPool2d<3, 1, pad(1)>::output(Shape{1, 2, 3}).shape == Shape{1, 2, 3}, "the padded input counts");
static_assert(AvgPool2d<5, 3, pad(2)>::output(Shape{8, 6, 3}).shape == Shape{3, 2, 3});

static_assert(parameters_of<MaxPool2d<3, 2>>(Shape{24, 24, 64}).count == 0);
static_assert(multiply_adds_of<MaxPool2d<3, 2>>(Shape{24, 24, 64}) == 0);
static_assert(!traits_of<MaxPool2d<3, 2>>().backward_reads_input &&
              !traits_of<MaxPool2d<3, 2>>().backward_reads_output);
static_assert(!traits_of<AvgPool2d<3, 2>>().backward_reads_input &&
              !traits_of<AvgPool2d<3, 2>>().backward_reads_output);
static_assert(traits_of<MaxPool2d<3, 2>>().can_apply_relu_mask && !traits_of<AvgPool2d<3, 2>>().can_apply_relu_mask);
static_assert(!traits_of<MaxPool2d<3, 2>>().absorbs_relu);
static_assert(kind_of<AvgPool2d<3, 2>>() == LayerKind::pooling &&
              kind_parts_of<AvgPool2d<3, 2>>().pooling(Shape{8, 8, 4}).kind == PoolingKind::average);

static_assert(std::string_view(MaxPool2d<0, 2>::output(Shape{24, 24, 64}).error) ==
              "has a window or a stride of less than 1: MaxPool2d 0 x 0, stride 2");
static_assert(std::string_view(AvgPool2d<3, 0>::output(Shape{24, 24, 64}).error) ==
              "has a window or a stride of less than 1: AvgPool2d 3 x 3, stride 0");
static_assert(std::string_view(MaxPool2d<3, 2>::output(Shape{64}).error) == "expects height x width x channels");
static_assert(std::string_view(MaxPool2d<3, 2>::output(Shape{2, 24, 64}).error) ==
              "has a window larger than its input: MaxPool2d 3 x 3, stride 2");
static_assert(std::string_view(AvgPool2d<3, 2>::output(Shape{24, 2, 64}).error) ==
              "has a window larger than its input: AvgPool2d 3 x 3, stride 2");
static_assert(std::string_view(MaxPool2d<5, 2, pad(1)>::output(Shape{2, 24, 64}).error) ==
              "has a window larger than its input: MaxPool2d 5 x 5, stride 2, pad 1");
static_assert(std::string_view(MaxPool2d<3, 2, pad(2)>::output(Shape{24, 24, 64}).error) ==
              "has a padding of more than half of its window: MaxPool2d 3 x 3, stride 2, pad 2");
static_assert(std::string_view(AvgPool2d<2, 2, pad(2)>::output(Shape{24, 24, 64}).error) ==
              "has a padding of more than half of its window: AvgPool2d 2 x 2, pad 2");
static_assert(std::string_view(MaxPool2d<3, 2, pad(std::int64_t{1} << 62)>::output(Shape{24, 24, 64}).error) ==
              "has a padding of more than half of its window: MaxPool2d 3 x 3, stride 2, pad 4611686018427387904");
static_assert(std::string_view(AvgPool2d<3, 2, pad(-1)>::output(Shape{24, 24, 64}).error) ==
              "has a negative padding: AvgPool2d 3 x 3, stride 2, pad -1");
static_assert(std::string_view(AvgPool2d<(std::int64_t{1} << 30), 2, pad(1 << 29)>::output(Shape{24, 24, 64}).error) ==
              "has an input, a window or a stride of more than 2^29 rows or columns");

// PyTorch's windows. Its extents are from torch.nn.functional.max_pool2d.
static_assert(MaxPool2d<3, 2, pad(1), ceil_mode>::output(Shape{112, 6, 64}).shape == Shape{57, 4, 64});
static_assert(MaxPool2d<3, 2, ceil_mode, valid>::output(Shape{24, 7, 64}).shape == Shape{12, 3, 64}, "in any order");
static_assert(MaxPool2d<2, 3, pad(1), ceil_mode>::output(Shape{4, 5, 8}).shape == Shape{2, 2, 8},
              "a third window would begin in the padding on the right");
static_assert(MaxPool2d<3, 3, valid, ceil_mode>::output(Shape{2, 1, 8}).shape == Shape{1, 1, 8});
static_assert(MaxPool2d<window(3, 2), stride(2, 1)>::output(Shape{7, 9, 5}).shape == Shape{4, 9, 5});
static_assert(MaxPool2d<window(3, 2)>::output(Shape{7, 9, 5}).shape == Shape{3, 5, 5}, "the window is the stride");
static_assert(MaxPool2d<window(3, 2), 2, pad(1, 0)>::output(Shape{7, 9, 5}).shape == Shape{4, 4, 5});
static_assert(AvgPool2d<3, stride(2), pad(0, 1)>::output(Shape{7, 9, 5}).shape == Shape{3, 5, 5});
static_assert(AvgPool2d<window(1, 5), stride(1, 2), valid>::output(Shape{7, 9, 5}).shape == Shape{7, 3, 5});
static_assert(std::is_same_v<MaxPool2d<3>, MaxPool2d<3, 3, same>>, "one type, however it is spelled");
static_assert([] {
    const auto counts = [](const PoolingShape& shape) { return shape.counts_padding; };
    const Shape input{8, 8, 4};
    return counts(AvgPool2d<3, 2, pad(1)>::shape(input)) &&
           counts(AvgPool2d<3, 2, pad(1), count_padding>::shape(input)) &&
           !counts(AvgPool2d<3, 2, pad(1), ignore_padding>::shape(input)) && !counts(AvgPool2d<3, 2>::shape(input)) &&
           !counts(AvgPool2d<3, 2, valid>::shape(input)) && !counts(MaxPool2d<3, 2, pad(1)>::shape(input));
}());

template <class L>
constexpr std::string_view error_of = L::output(Shape{24, 24, 64}).error;

static_assert(error_of<MaxPool2d<3, 2, 1>> == "accepts only same, valid or pad(n), and ceil_mode after its stride" &&
              error_of<MaxPool2d<3, 2, no_bias>> == error_of<MaxPool2d<3, 2, 1>> &&
              error_of<MaxPool2d<3, 2, pad(1), count_padding>> == error_of<MaxPool2d<3, 2, 1>>);
static_assert(error_of<AvgPool2d<3, 2, no_bias>> ==
              "accepts only same, valid or pad(n), ceil_mode, and count_padding or ignore_padding after its stride");
static_assert(error_of<MaxPool2d<3, pad(1)>> ==
                  "expects its window, n or window(height, width), and then its stride, n or stride(height, width)" &&
              error_of<MaxPool2d<stride(2)>> != "" && error_of<MaxPool2d<pad(1), 2>> == error_of<MaxPool2d<3, pad(1)>>);
static_assert(error_of<MaxPool2d<3, 2, pad(1), valid>> == "accepts only one of same, valid and pad(n)" &&
              error_of<MaxPool2d<3, 2, pad(1), pad(1, 1)>> == "accepts only one of same, valid and pad(n)");
static_assert(error_of<MaxPool2d<3, 2, pad(1), ceil_mode, ceil_mode>> == "is given an option twice" &&
              error_of<AvgPool2d<3, 2, pad(1), count_padding, ignore_padding>> == "is given an option twice");
static_assert(error_of<MaxPool2d<3, 2, ceil_mode>> ==
                  "accepts ceil_mode only with valid or pad(n): same rounds up already" &&
              error_of<MaxPool2d<3, 2, same, ceil_mode>> == error_of<MaxPool2d<3, 2, ceil_mode>>);
static_assert(error_of<AvgPool2d<3, 2, valid, count_padding>> ==
              "accepts count_padding and ignore_padding only with pad(n)");
static_assert(error_of<MaxPool2d<window(3, 0)>> == "has a window or a stride of less than 1: MaxPool2d 3 x 0" &&
              error_of<MaxPool2d<3, stride(1, -2)>> ==
                  "has a window or a stride of less than 1: MaxPool2d 3 x 3, stride 1 x -2");
static_assert(error_of<MaxPool2d<window(4, 3), 1, pad(2, 2)>> ==
                  "has a padding of more than half of its window: MaxPool2d 4 x 3, stride 1, pad 2" &&
              error_of<MaxPool2d<3, 1, pad(0, -1)>> == "has a negative padding: MaxPool2d 3 x 3, stride 1, pad 0 x -1");
static_assert(error_of<MaxPool2d<window(3, 25)>> == "has a window larger than its input: MaxPool2d 3 x 25" &&
              error_of<MaxPool2d<27, 3, valid, ceil_mode>> ==
                  "has a window larger than its input: MaxPool2d 27 x 27, stride 3, valid, ceil mode");
static_assert(error_of<MaxPool2d<3, stride(1, INT64_MAX), valid, ceil_mode>> ==
              "has an input, a window or a stride of more than 2^29 rows or columns");

template <class L, class D>
void agrees(const Shape& input, const reference::Pooling& r) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<L, D>(input, r.batch, seed);
    CHECK(reference::distance(outcome.output, r.forward(problem.x)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.x)) <
          operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("MaxPool2d and AvgPool2d compute the operations of their template arguments", D, DevicesAndElements) {
    agrees<MaxPool2d<3, 2>, D>({9, 8, 5}, {3, reference::same(9, 3, 2), reference::same(8, 3, 2), 5, true});
    agrees<MaxPool2d<2, 1, valid>, D>({5, 8, 16}, {2, reference::valid(5, 2, 1), reference::valid(8, 2, 1), 16, true});
    agrees<AvgPool2d<3, 2>, D>({9, 8, 5}, {3, reference::same(9, 3, 2), reference::same(8, 3, 2), 5, false});
    agrees<AvgPool2d<2>, D>({7, 5, 16}, {2, reference::same(7, 2, 2), reference::same(5, 2, 2), 16, false});
    agrees<MaxPool2d<3, 2, pad(1)>, D>({8, 7, 5},
                                       {3, reference::padded(8, 3, 2, 1), reference::padded(7, 3, 2, 1), 5, true});
    // A window whose offsets need more than a byte, in float.
    agrees<MaxPool2d<17, 2, pad(8)>, DeviceOf<D>>(
        {9, 20, 8}, {2, reference::padded(9, 17, 2, 8), reference::padded(20, 17, 2, 8), 8, true});
    agrees<AvgPool2d<3, 2, pad(1)>, D>(
        {8, 7, 5}, {3, reference::padded(8, 3, 2, 1), reference::padded(7, 3, 2, 1), 5, false, true});
    agrees<AvgPool2d<2, 2, pad(1)>, D>(
        {7, 8, 16}, {2, reference::padded(7, 2, 2, 1), reference::padded(8, 2, 2, 1), 16, false, true});
    agrees<MaxPool2d<window(3, 2), stride(2, 1), pad(1, 0)>, D>(
        {8, 7, 5}, {3, reference::padded(8, 3, 2, 1), reference::valid(7, 2, 1), 5, true});
    agrees<AvgPool2d<3, 2, pad(1), ceil_mode>, D>(
        {8, 7, 5}, {3, reference::padded(8, 3, 2, 1, true), reference::padded(7, 3, 2, 1, true), 5, false, true});
    agrees<AvgPool2d<3, 2, pad(1), ignore_padding>, D>(
        {8, 7, 5}, {3, reference::padded(8, 3, 2, 1), reference::padded(7, 3, 2, 1), 5, false});
}
