// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/avg_pool1d.hpp, cupola/layers/batch_norm1d.hpp, cupola/layers/conv1d.hpp
// Covers: cupola/layers/global_avg_pool1d.hpp, cupola/layers/impl/batch_norm.hpp, cupola/layers/impl/one_row.hpp
// Covers: cupola/layers/impl/pool1d.hpp, cupola/layers/max_pool1d.hpp
//
// Layers of sequences: extents, parameters and messages are known from the type; values and gradients are those of
// plain loops, and PyTorch's.
#include "../test.hpp"

#include <cupola/layers/avg_pool1d.hpp>
#include <cupola/layers/batch_norm1d.hpp>
#include <cupola/layers/conv1d.hpp>
#include <cupola/layers/global_avg_pool1d.hpp>
#include <cupola/layers/max_pool1d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/sequential.hpp>
#endif

#include "../reference/batch_norm.hpp"
#include "../reference/convolution.hpp"
#include "../reference/pooling.hpp"
#include "layer_run.hpp"

namespace {

constexpr Shape sequence{24, 8};

static_assert(LayerOn<Conv1d<16, 5>, AnyDevice> && LayerOn<MaxPool1d<2>, AnyDevice> &&
              LayerOn<AvgPool1d<2>, AnyDevice> && LayerOn<GlobalAvgPool1d, AnyDevice> &&
              LayerOn<BatchNorm1d<>, AnyDevice>);
static_assert(Conv1d<16, 5>::output(sequence).shape == Shape{24, 16});
static_assert(Conv1d<16, 5, stride(2)>::output(Shape{25, 8}).shape == Shape{13, 16});
static_assert(Conv1d<16, 5, stride(2), valid>::output(sequence).shape == Shape{10, 16});
static_assert(Conv1d<16, 3, pad(4), dilation(4)>::output(sequence).shape == Shape{24, 16});
static_assert(MaxPool1d<3, 2>::output(Shape{7, 5}).shape == Shape{4, 5});
static_assert(MaxPool1d<3, stride(2), valid, ceil_mode>::output(Shape{8, 5}).shape == Shape{4, 5});
static_assert(AvgPool1d<5, 3, pad(2)>::output(Shape{8, 5}).shape == Shape{3, 5});
static_assert(GlobalAvgPool1d::output(sequence).shape == Shape{8});
static_assert(BatchNorm1d<>::output(sequence).shape == sequence && BatchNorm1d<>::output(Shape{8}).shape == Shape{8});

constexpr Parameters parameters = parameters_of<Conv1d<6, 5, groups(2)>>(sequence);
static_assert(parameters.count == 2 && parameters.list[0].shape == Shape{6, 5, 4} &&
              parameters.list[1].shape == Shape{6});
static_assert(parameters.list[0].fan_in == 5 * 4 && parameters.list[0].fan_out == 5 * 6);
static_assert(parameters.list[0].layout == FileLayout::channels_second);
static_assert(parameters_of<Conv1d<6, 5, no_bias>>(sequence).count == 1);
static_assert(buffers_of<BatchNorm1d<>>(sequence).count == 2 &&
              ReducesStatistics<OperationOf<BatchNorm1d<>, AnyDevice>>);
static_assert(multiply_adds_of<Conv1d<6, 3>>(sequence) == (3 * 24 - 2) * 8 * 6);
static_assert(kind_of<Conv1d<6, 3>>() == LayerKind::convolution && kind_of<MaxPool1d<3>>() == LayerKind::pooling &&
              kind_of<BatchNorm1d<>>() == LayerKind::batch_norm);
static_assert(traits_of<Conv1d<6, 3>>().absorbs_relu && traits_of<BatchNorm1d<>>().absorbs_relu6);

static_assert(description_of<Conv1d<6, 3>>() == "Conv1d 6, 3");
static_assert(description_of<Conv1d<6, 3, stride(2), pad(1), dilation(2), groups(2), no_bias>>() ==
              "Conv1d 6, 3, stride 2, pad 1, dilation 2, 2 groups, no bias");
static_assert(description_of<Conv1d<6, 3, valid, depthwise>>() == "Conv1d 6, 3, valid, depthwise");
static_assert(description_of<AvgPool1d<3, 2, pad(1), ignore_padding>>() ==
              "AvgPool1d 3, stride 2, pad 1, padding ignored");
static_assert(description_of<MaxPool1d<3, 2, valid, ceil_mode>>() == "MaxPool1d 3, stride 2, valid, ceil mode");
static_assert(description_of<BatchNorm1d<1e-3>>() == "BatchNorm1d, epsilon 0.001");

template <class L>
constexpr std::string_view error_of(const Shape& input = sequence) {
    return L::output(input).error;
}
static_assert(error_of<Conv1d<6, kernel(1, 3)>>() == "expects its channels and then its kernel, n");
static_assert(error_of<Conv1d<6, 3, stride(1, 2)>>() ==
              "accepts only the options stride(n), same, valid, pad(n), dilation(n), groups(n), depthwise, no_bias, "
              "weights(...) and biases(...)");
static_assert(error_of<Conv1d<6, 3, ceil_mode>>() == error_of<Conv1d<6, 3, stride(1, 2)>>());
static_assert(error_of<Conv1d<6, 3>>({4, 4, 3}) == "expects length x channels" &&
              error_of<Conv1d<6, 3>>({4}) == "expects length x channels");
static_assert(error_of<Conv1d<6, 3, pad(1), valid>>() == "accepts only one of same, valid and pad(n)");
static_assert(error_of<Conv1d<6, 3, stride(1), stride(2)>>() == "is given an option twice");
static_assert(error_of<Conv1d<6, 3, pad(-1)>>() == "has a negative padding");
static_assert(error_of<Conv1d<6, 3, pad(3)>>() ==
              "has a padding as large as its kernel: some outputs would not depend on the input");
static_assert(error_of<Conv1d<6, 0>>() == "has the kernel 0, which must be at least 1");
static_assert(error_of<Conv1d<6, 3, groups(3)>>() == "has 3 groups, which do not divide the channels of its input");
static_assert(error_of<Conv1d<6, 25, valid>>() == "has a kernel larger than its input");
static_assert(error_of<Conv1d<6, 9, valid, dilation(2)>>({5, 4}) ==
              "has a kernel larger than its input with the dilation 2");
static_assert(error_of<Conv1d<6, 3, stride(1 << 30)>>() ==
              "has an input, a kernel, a stride or a padding of more than 2^29 positions");
static_assert(error_of<MaxPool1d<3, 1 << 30>>() == "has an input, a window or a stride of more than 2^29 positions");
// A device that has no such operation is no error of its own.
struct Other : AnyDevice {
    using Kernels = Other;
};
static_assert(!HasOperation<Conv1d<6, 3>, Other> && !HasOperation<MaxPool1d<3>, Other> &&
              !HasOperation<GlobalAvgPool1d, Other> && !HasOperation<BatchNorm1d<>, Other>);
static_assert(error_of<MaxPool1d<window(1, 2)>>() == "expects its window, n, and then its stride, n" &&
              error_of<MaxPool1d<3, pad(1)>>() == error_of<MaxPool1d<window(1, 2)>>() &&
              error_of<MaxPool1d<3, stride(1, 2)>>() == error_of<MaxPool1d<window(1, 2)>>());
static_assert(error_of<MaxPool1d<3, 2, pad(0, 1)>>() ==
              "accepts only same, valid or pad(n), and ceil_mode after its stride");
static_assert(error_of<AvgPool1d<3, 2, no_bias>>() ==
              "accepts only same, valid or pad(n), ceil_mode, and count_padding or ignore_padding after its stride");
static_assert(error_of<MaxPool1d<3, 2, pad(2)>>() ==
              "has a padding of more than half of its window: MaxPool1d 3, stride 2, pad 2");
static_assert(error_of<AvgPool1d<25>>() == "has a window larger than its input: AvgPool1d 25");
static_assert(error_of<MaxPool1d<2>>({4, 4, 3}) == "expects length x channels");
static_assert(error_of<GlobalAvgPool1d>({4, 4, 3}) == "expects length x channels");
static_assert(error_of<BatchNorm1d<>>({4, 4, 3}) == "expects channels, or length x channels");
static_assert(error_of<BatchNorm1d<0>>() == "has an epsilon that is not positive and finite");

reference::Axis axis_of(const WindowAxis& axis) {
    return {axis.input, axis.window, axis.stride, axis.output, axis.pad_begin, axis.pad_end, axis.dilation};
}

template <class L, class D>
void convolves(const Shape& input, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, std::string(description_of<L>()));
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    const ConvolutionShape s = L::shape(input);
    const reference::Convolution r{batch, axis_of(s.height), axis_of(s.width), s.in_channels, s.out_channels, s.groups};
    const reference::Floats& weight = problem.parameters[0];
    const reference::Floats bias = s.bias ? problem.parameters[1] : reference::Floats{};
    CHECK(reference::distance(outcome.output, r.forward(problem.x, weight, bias)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, weight)) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.parameter_gradients[0], r.weight_gradient(problem.dy, problem.x)) <
          operation_run::weight_gradient_tolerance<D>);
}

template <class L, class D>
void pools(const Shape& input, const PoolingShape& s, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, std::string(description_of<L>()));
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    const reference::Pooling r{batch,      axis_of(s.height),          axis_of(s.width),
                               s.channels, s.kind == PoolingKind::max, s.counts_padding};
    CHECK(reference::distance(outcome.output, r.forward(problem.x)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.x)) <
          operation_run::tolerance<D>);
}
template <class L, class D>
void pools(const Shape& input, std::int64_t batch) {
    pools<L, D>(input, L::shape(input), batch);
}

template <class D>
void normalises(const Shape& input, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<BatchNorm1d<0.5>, D>(input, batch, seed);
    const reference::BatchNorm r{static_cast<std::size_t>(input.channels()), 0.5};
    const auto moments = r.moments(problem.x);
    const auto gradients = r.backward(problem.dy, problem.x, problem.parameters[0], outcome.output, moments);
    CHECK(reference::distance(outcome.output, r.forward(problem.x, problem.parameters[0], problem.parameters[1],
                                                        moments)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, gradients.input) < operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("layers of sequences agree with plain loops, forward and backward", D, DevicesAndElements) {
    convolves<Conv1d<16, 5>, D>({9, 3}, 3);
    convolves<Conv1d<5, 3, stride(2), no_bias>, D>({8, 6}, 2);
    convolves<Conv1d<16, 4, stride(3), valid>, D>({17, 16}, 1);
    convolves<Conv1d<8, 3, pad(3), dilation(2), groups(4)>, D>({11, 8}, 2);
    convolves<Conv1d<12, 7, depthwise, stride(2)>, D>({13, 6}, 2);
    convolves<Conv1d<4, 1>, D>({1, 5}, 7);
    pools<MaxPool1d<3, 2>, D>({9, 5}, 3);
    pools<MaxPool1d<2, 1, pad(1)>, D>({8, 16}, 2);
    pools<AvgPool1d<3, 2, valid, ceil_mode>, D>({8, 5}, 2);
    pools<AvgPool1d<3, stride(2), pad(1), ignore_padding>, D>({8, 7}, 1);
    const auto all = [](std::int64_t size) { return window_axis(size, size, 1, Padding::valid); };
    pools<GlobalAvgPool1d, D>({9, 6}, PoolingShape{all(1), all(9), 6, PoolingKind::average}, 3);
    normalises<D>({6, 20}, 3);
    normalises<D>({20}, 9);
}

#ifndef CUPOLA_TEST_CUDA
namespace {

struct Net : Sequential<Input<12, 3>, Conv1d<6, 3, stride(2)>, BatchNorm1d<>, ReLU, MaxPool1d<2>,
                        Conv1d<8, 3, pad(1), groups(2)>, AvgPool1d<3, 1, pad(1)>, GlobalAvgPool1d, Linear<5>,
                        BatchNorm1d<>, ReLU, Linear<2>> {};
static_assert(Net::output == Extents<2>{});

void right(const GradientCheck& check) { CHECK_MESSAGE(check, check.report()); }

}  // namespace

TEST_CASE("layers of sequences keep the contract of a layer, alone and in a network") {
    right(check_gradients<Conv1d<8, 3, stride(2), dilation(2)>, Host>({9, 4}, {.batch = 2}));
    right(check_gradients<MaxPool1d<3, 2, pad(1)>, Host>({9, 4}, {.batch = 2}));
    right(check_gradients<GlobalAvgPool1d, Host>({9, 4}, {.batch = 2}));
    right(check_gradients<BatchNorm1d<>, Host>({9, 4}, {.batch = 2}));
    right(check_gradients<Net, CrossEntropy<2>, Host>({.batch = 5}));
}
#endif
