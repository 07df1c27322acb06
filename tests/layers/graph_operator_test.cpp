// SPDX-License-Identifier: Apache-2.0
//
// What each layer is in an ONNX graph; tests/io/onnx_test.cpp has whole files, and tests/interop runs them.
#include <cupola/layers/graph_operator.hpp>

#include "../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/layers/on_device.hpp>
#include <throws_with.hpp>

namespace {

std::string text_of(const GraphNumbers& numbers) {
    std::string result;
    for (std::int64_t row = 0; row < numbers.rows; ++row) {
        for (std::int64_t column = 0; column < numbers.columns; ++column)
            result += text(column > 0 ? "," : row > 0 ? "|" : "", numbers.element(numbers, row, column));
    }
    for (const double number : numbers.list) result += text(result.empty() ? "" : ",", number);
    if (numbers.type == GraphNumbers::Type::float32) result += 'f';
    return numbers.trailing_ones == 0 ? result : text(result, " of ", numbers.trailing_ones, " ones");
}

/// "Gemm(weight, bias) transB=1; Relu".
std::string text_of(const GraphOperators& operators) {
    std::string result;
    for (const GraphOperator& each : operators) {
        result += text(result.empty() ? "" : "; ", each.type());
        std::string inputs;
        for (const GraphInput& input : each.inputs()) {
            using Kind = GraphInput::Kind;
            inputs += inputs.empty() ? "" : ", ";
            switch (input.kind) {
                case Kind::input: inputs += "input"; break;
                case Kind::second_input: inputs += "second"; break;
                case Kind::previous: inputs += "previous"; break;
                case Kind::result: inputs += text("result ", input.number); break;
                case Kind::parameter:
                    inputs +=
                        input.zero_row < 0 ? std::string(input.name) : text(input.name, " without ", input.zero_row);
                    break;
                case Kind::constant: inputs += '[' + text_of(input.constant) + ']'; break;
                case Kind::nothing: inputs += "nothing"; break;
            }
        }
        if (!inputs.empty()) result += '(' + inputs + ')';
        for (const GraphAttribute& attribute : each.attributes())
            result += text(' ', attribute.name, '=',
                           attribute.text.empty() ? text_of(attribute.numbers) : std::string(attribute.text));
    }
    return result;
}

template <class L>
std::string form(const Shape& input) {
    return text_of(L::onnx(input));
}

/// Rows and columns that the windows of an axis of `size` have outside, as `window()` states them.
std::string window_text(std::int64_t window, std::int64_t stride, const char* pads) {
    return text(" kernel_shape=", window, ',', window, " strides=", stride, ',', stride, " pads=", pads);
}

}  // namespace

// They are values of the compiler.
static_assert(Conv2d<8, 3, stride(2)>::onnx({9, 9, 3})[0].inputs().size() == 3);
static_assert(SiLU::onnx({4}).size() == 2 && SiLU::onnx({4})[1].type() == "Mul");
static_assert(HasGraphOperators<ReLU> && HasGraphOperators<FromBytes<>>);
// Dropout does nothing in evaluation.
static_assert(!HasGraphOperators<Dropout<0.5>>);
static_assert(HasGraphOperators<impl::OffloadedLayer<Host, Flatten>>);
static_assert(!HasGraphOperators<impl::OffloadedLayer<Host, Dropout<0.5>>>);

TEST_CASE("layers with windows have their paddings by side") {
    const Shape image{9, 9, 4};
    CHECK(form<Conv2d<8, 3>>(image) == "Conv(input, weight, bias)" + window_text(3, 1, "1,1,1,1"));
    CHECK(form<Conv2d<8, 4, stride(3), no_bias>>(image) == "Conv(input, weight)" + window_text(4, 3, "0,0,1,1"));
    CHECK(form<Conv2d<8, 3, stride(2), pad(1)>>(image) == "Conv(input, weight, bias)" + window_text(3, 2, "1,1,1,1"));
    CHECK(form<Conv2d<8, 3, valid>>(image) == "Conv(input, weight, bias)" + window_text(3, 1, "0,0,0,0"));
    CHECK(form<ConvTranspose2d<8, 2, stride(2)>>(image) ==
          "ConvTranspose(input, weight, bias)" + window_text(2, 2, "0,0,0,0"));
    CHECK(form<ConvTranspose2d<8, 3, stride(2), pad(1), output_padding(1, 0), dilation(1, 2), groups(4), no_bias>>(
              image) ==
          "ConvTranspose(input, weight)" + window_text(3, 2, "1,1,1,1") + " dilations=1,2 output_padding=1,0 group=4");
    CHECK(form<MaxPool2d<2>>(image) == "MaxPool" + window_text(2, 2, "0,0,1,1"));
    CHECK(form<MaxPool2d<window(3, 2), stride(2, 3), pad(1, 0), ceil_mode>>({8, 9, 1}) ==
          "MaxPool kernel_shape=3,2 strides=2,3 pads=1,0,2,0");
    CHECK(form<AvgPool2d<2>>(image) == "AveragePool" + window_text(2, 2, "0,0,1,1") + " count_include_pad=0");
    CHECK(form<AvgPool2d<3, 2, pad(1)>>(image) ==
          "AveragePool" + window_text(3, 2, "1,1,1,1") + " count_include_pad=1");
    CHECK(form<AvgPool2d<3, 2, pad(1), ignore_padding>>(image) ==
          "AveragePool" + window_text(3, 2, "1,1,1,1") + " count_include_pad=0");
    // What ceil_mode adds is not counted, and the padding is.
    CHECK(form<AvgPool2d<3, 2, pad(1), ceil_mode>>({8, 8, 4}) ==
          "Pad(previous, [0,0,1,1,0,0,1,1]); AveragePool" + window_text(3, 2, "0,0,1,1") + " count_include_pad=0");
    CHECK(form<AvgPool2d<3, 2, pad(1), ceil_mode, ignore_padding>>({8, 8, 4}) ==
          "AveragePool" + window_text(3, 2, "1,1,2,2") + " count_include_pad=0");
    CHECK(form<OptionAShortcut<8, 2>>(image) ==
          "AveragePool" + window_text(2, 2, "0,0,1,1") + "; Pad(previous, [0,2,0,0,0,2,0,0])");
    CHECK(form<OptionAShortcut<6>>(image) == "Pad(previous, [0,1,0,0,0,1,0,0])");
    CHECK(form<OptionAShortcut<4>>(image).empty());
}

TEST_CASE("the other layers") {
    const Shape image{9, 9, 4};
    CHECK(form<Linear<3>>({5}) == "Gemm(input, weight, bias) transB=1");
    CHECK(form<Linear<3, no_bias>>({5}) == "Gemm(input, weight) transB=1");
    CHECK(form<Linear<3, per_position>>({5}) == "Gemm(input, weight, bias) transB=1");
    CHECK(form<Linear<3, per_position>>({5, 4}) ==
          "Transpose(weight) perm=1,0; MatMul(input, previous); Add(previous, bias)");
    CHECK(form<Linear<3, per_position>>(image) == "Unsqueeze(weight, [2,3]); Conv(input, previous, bias)");
    CHECK(form<Linear<3, per_position, no_bias>>(image) == "Unsqueeze(weight, [2,3]); Conv(input, previous)");
    CHECK(form<BatchNorm2d<1e-3>>(image) ==
          "BatchNormalization(input, weight, bias, running_mean, running_var) epsilon=0.001f");
    CHECK(form<GlobalAvgPool2d>(image) == "GlobalAveragePool; Flatten");
    // ONNX divides alpha by the size, and a window wider than the channels has all of them.
    CHECK(form<LocalResponseNorm<1, 0.25, 0.5, 2.0>>(image) == "LRN size=3 alpha=0.75f beta=0.5f bias=2f");
    CHECK(form<LocalResponseNorm<1000, 0.25, 0.5>>(image) == "LRN size=9 alpha=2.25f beta=0.5f bias=1f");
    CHECK(form<ReLU>(image) == "Relu");
    CHECK(form<LeakyReLU<0.2>>(image) == "LeakyRelu alpha=0.2f");
    CHECK(form<Sigmoid>(image) == "Sigmoid");
    CHECK(form<ScaleChannels<>>(image) == "Mul(input, )");
    CHECK(form<SiLU>(image) == "Sigmoid; Mul(input, previous)");
    CHECK(form<Flatten>(image) == "Flatten");
    CHECK(form<FlattenChannelsLast>(image) == "Transpose perm=0,2,3,1; Flatten");
    CHECK(form<FlattenChannelsLast>({9, 4}) == "Flatten");
    CHECK(form<Upsample2d<3>>(image) ==
          "Resize(input, nothing, [1,1,3,3f]) mode=nearest coordinate_transformation_mode=asymmetric "
          "nearest_mode=floor");
    CHECK(form<UpsampleBilinear2d<2>>(image) ==
          "Resize(input, nothing, [1,1,2,2f]) mode=linear coordinate_transformation_mode=half_pixel");
    CHECK(form<AdaptiveAvgPool2d<3, 1>>(image) == "AveragePool kernel_shape=3,9 strides=3,9 pads=0,0,0,0");
    // Windows that overlap.
    CHECK(form<AdaptiveAvgPool2d<2, 3>>({3, 4, 2}) ==
          "MatMul([0.5,0.5,0|0,0.5,0.5f], input); MatMul(previous, [0.5,0,0|0.5,0.5,0|0,0.5,0.5|0,0,0.5f])");
    CHECK(form<AdaptiveAvgPool2d<2, 1>>({1, 2, 2}) == "MatMul([1|1f], input); MatMul(previous, [0.5|0.5f])");
    CHECK(form<Pad2d<1, 2, 3, 4>>(image) == "Pad(previous, [0,0,1,3,0,0,2,4])");
    CHECK(form<Crop2d<1, 2, 3, 4>>(image) == "Slice(previous, [1,3], [7,5], [2,3])");
    CHECK(form<Permute<2, 0, 1>>(image) == "Transpose perm=0,3,1,2");  // of channels, height, width
    CHECK(form<Permute<1, 0, 2>>(image) == "Transpose perm=0,1,3,2");
    CHECK(form<Permute<1, 0>>({3, 4}) == "Transpose perm=0,2,1");
    CHECK(form<Reshape<-1>>(image) == "Flatten");
    CHECK(form<Reshape<2, 6>>({12}) == "Reshape(previous, [0,2,6])");
    CHECK(form<Reshape<-1, 12>>(image) == "Transpose perm=0,2,3,1; Reshape(previous, [0,27,12])");
    CHECK(form<Reshape<3, 2, 2>>({12}) == "Reshape(previous, [0,3,2,2]); Transpose perm=0,3,1,2");
    CHECK(form<Embedding<9, 2>>({5}) == "Gather(weight, input)");
    CHECK(form<Embedding<9, 2, padding_id(3)>>({5, 1}) == "Gather(weight without 3, input); Transpose perm=0,3,1,2");
    CHECK(form<FromBytes<means(2, 4, 8, 16), deviations(0.5)>>(image) ==
          "Cast to=1; Sub(previous, [2,4,8,16f of 2 ones]); Mul(previous, [2,2,2,2f of 2 ones])");
    CHECK(form<FromBytes<means(2), deviations(0.5)>>({7}) == "Cast to=1; Sub(previous, [2f]); Mul(previous, [2f])");
    CHECK(form<impl::OffloadedLayer<Host, ReLU>>(image) == "Relu");
}

TEST_CASE("an operator has a limited number of parts") {
    GraphOperator wide("Sum");
    for (int i = 0; i < 6; ++i) wide.result(0);
    CHECK(message_of<InvalidArgument>([&] { wide.result(0); }) == "an ONNX operator has more than 6 parts");
}
