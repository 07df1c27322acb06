// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/gradient_check.hpp
//
// check_gradients accepts correct layers and reports each kind of error.
#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/adaptive_avg_pool2d.hpp>
#include <cupola/layers/crop2d.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/layers/pad2d.hpp>
#include <cupola/layers/upsample_bilinear2d.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/net/check_gradients.hpp>

#include "../throws_with.hpp"

namespace {

/// The errors that a layer y = scale[c] x can have.
enum class Wrong {
    nothing,
    parameter_sign,
    parameter_scale,
    input_sign,
    input_scale,
    parameter_zero,
    last_element,
    overwrites,
    adds,
    forgets_an_element,
    forward_forgets,
    forward_changes_input,
    backward_changes_output,
    changes_parameter,
    random,
    needs_input_gradient,
    reads_input_secretly,
    reads_output_secretly,
    small_scratch,
    no_relu_inside,
    no_limit_inside,
    masks_again,
    other_gradient_for_first_layer,
    not_in_place,
};

template <Wrong wrong>
struct ScaleOnHost {
    std::int64_t pixels, channels;
    Activation activation;
    bool relu_mask_applied_by_next, made_for_input_gradient;
    int calls = 0;

    MemoryNeeds needs() const { return {.scratch = 4}; }

    void forward(const ForwardArgs<Host>& args) {
        ++calls;
        const float drift = wrong == Wrong::random ? 1e-3F * static_cast<float>(calls) : 0.0F;
        for (std::int64_t i = 0; i < pixels * channels; ++i) {
            float y = args.input[i] * args.parameters[0][i % channels] + drift;
            if (activation != Activation::none && wrong != Wrong::no_relu_inside) y = y > 0 ? y : 0;
            if (activation == Activation::relu6 && wrong != Wrong::no_limit_inside) y = std::min(y, 6.0F);
            if (wrong == Wrong::forward_forgets && i == 7) continue;
            args.output[i] = y;
        }
        if (wrong == Wrong::forward_changes_input) const_cast<float*>(args.input)[0] += 1;
        if (wrong == Wrong::small_scratch) args.scratch[4] = std::byte{1};
    }

    void backward(const BackwardArgs<Host>& args) {
        if (wrong == Wrong::needs_input_gradient && args.input_gradient == nullptr) return;
        float* const gradient = args.output_gradient;
        const bool mask = activation != Activation::none && (!relu_mask_applied_by_next || wrong == Wrong::masks_again);
        const bool limited = activation == Activation::relu6 && wrong != Wrong::no_limit_inside;
        for (std::int64_t i = 0; mask && i < pixels * channels; ++i) {
            if (!(args.output[i] > 0) || (limited && args.output[i] >= 6)) gradient[i] = 0;
        }
        for (std::int64_t c = 0; c < channels; ++c) {
            float sum = 0;
            for (std::int64_t i = c; i < pixels * channels; i += channels) {
                const float x =
                    wrong == Wrong::reads_output_secretly ? args.output[i] / args.parameters[0][c] : args.input[i];
                sum += gradient[i] * x;
            }
            if (wrong == Wrong::parameter_sign) sum = -sum;
            if (wrong == Wrong::parameter_scale) sum *= 3;
            if (wrong == Wrong::parameter_zero) sum = 0;
            if (wrong == Wrong::last_element && c == channels - 1) sum = 0;
            if (wrong == Wrong::forgets_an_element && c == 1) continue;
            if (wrong == Wrong::other_gradient_for_first_layer && !made_for_input_gradient) sum += 1;
            const bool add = wrong == Wrong::overwrites ? false : wrong == Wrong::adds ? true : args.accumulate;
            args.parameter_gradients[0][c] = add ? args.parameter_gradients[0][c] + sum : sum;
        }
        if (wrong == Wrong::backward_changes_output) args.output[0] = 0;
        if (wrong == Wrong::changes_parameter) const_cast<float*>(args.parameters[0])[0] += 1;
        if (args.input_gradient == nullptr) return;
        const float factor = wrong == Wrong::input_sign ? -1.0F : wrong == Wrong::input_scale ? 0.5F : 1.0F;
        for (std::int64_t i = 0; i < pixels * channels; ++i) {
            if (wrong == Wrong::not_in_place) args.input_gradient[i] = 0;  // before it has read what may be there
            args.input_gradient[i] = factor * gradient[i] * args.parameters[0][i % channels];
        }
    }
};

template <Wrong wrong = Wrong::nothing>
struct Scale {
    static constexpr LayerTraits traits{
        .backward_reads_input = wrong != Wrong::reads_input_secretly,
        .backward_reads_output = false,
        .absorbs_relu = wrong == Wrong::nothing || wrong == Wrong::no_relu_inside || wrong == Wrong::masks_again,
        .absorbs_relu6 = wrong == Wrong::nothing || wrong == Wrong::no_limit_inside,
        .input_gradient_in_place = wrong == Wrong::nothing || wrong == Wrong::not_in_place};
    static constexpr ShapeResult output(const Shape& input) {
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        return input;
    }
    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = "scale", .shape = {input.channels()}, .initializer = constant(1.0)};
    }
    static ScaleOnHost<wrong> operation(const BuildContext<Host>& build) {
        return {build.batch * build.input.height() * build.input.width(), build.input.channels(), build.activation,
                build.relu_mask_applied_by_next, build.input_gradient};
    }
};

template <Wrong wrong>
std::string report() {
    const GradientCheck check = check_gradients<Scale<wrong>, Host>({3, 4, 5}, {.batch = 3});
    CHECK(check.failures().empty() == static_cast<bool>(check));
    return check.report();
}

/// A function of each element: y = f(x), dy/dx as given.
template <float (*f)(float), float (*derivative)(float), bool relu = false>
struct Elementwise {
    static constexpr LayerKind kind = LayerKind::activation;
    static constexpr Activation activation = relu ? Activation::relu : Activation::none;
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        std::int64_t count;
        void forward(const ForwardArgs<Host>& args) const {
            for (std::int64_t i = 0; i < count; ++i) args.output[i] = f(args.input[i]);
        }
        void backward(const BackwardArgs<Host>& args) const {
            if (args.input_gradient == nullptr) return;
            for (std::int64_t i = 0; i < count; ++i) {
                args.input_gradient[i] = args.output_gradient[i] * derivative(args.input[i]);
            }
        }
    };
    static Operation operation(const BuildContext<Host>& build) { return {build.batch * build.input.size()}; }
};

float tanh_of(float x) { return std::tanh(x); }
float tanh_derivative(float x) { return 1 - std::tanh(x) * std::tanh(x); }
float wrong_tanh_derivative(float x) { return 1 - std::tanh(x); }
float rounded(float x) { return std::round(8 * x) / 8; }
/// Eight steps of a recurrent layer of one unit, h = sin(2.2 h + x), from h = 0: its derivative changes within 0.003.
float recurrent(float x) {
    double h = 0;
    for (int t = 0; t < 8; ++t) h = std::sin(2.2 * h + static_cast<double>(x));
    return static_cast<float>(h);
}
float recurrent_derivative(float x) {
    double h = 0, derivative = 0;
    for (int t = 0; t < 8; ++t) {
        const double sum = 2.2 * h + static_cast<double>(x);
        h = std::sin(sum);
        derivative = std::cos(sum) * (2.2 * derivative + 1);
    }
    return static_cast<float>(derivative);
}
float wrong_recurrent_derivative(float x) { return 1.01F * recurrent_derivative(x); }
float zero(float) { return 0; }
float one(float) { return 1; }
float same_of(float x) { return x; }
float leaky(float x) { return x > 0 ? x : 0.1F * x; }
float leaky_derivative(float x) { return x > 0 ? 1 : 0.1F; }

struct ViewOfAnotherSize {
    static constexpr LayerKind kind = LayerKind::view;
    static constexpr ShapeResult output(const Shape& input) { return Shape{input.size() - 1}; }
    template <class BuildContext>
    static Flatten::Nothing operation(const BuildContext&) {
        return {};
    }
};

/// It says that it masks for a ReLU before it, and does not.
struct MaskOnlyInWords : Elementwise<same_of, one> {
    static constexpr LayerTraits traits{.can_apply_relu_mask = true};
};

/// A loss whose gradient is that of the sum where it says that it is that of the mean.
struct UnaveragedLoss {
    using Target = std::int32_t;
    static constexpr Shape target(const Shape&) { return {1}; }
    struct Operation {
        ops::SoftmaxCrossEntropy<Host, float> right{10, 0.0F};
        LossResult forward(HostContext& context, const float* logits, const std::int32_t* labels, std::int64_t batch,
                           float* gradient) const {
            const LossResult result = right.forward(context, logits, labels, batch, gradient);
            for (std::int64_t i = 0; gradient != nullptr && i < batch * 10; ++i)
                gradient[i] *= static_cast<float>(batch);
            return result;
        }
    };
    template <class Device>
    Operation operation() const {
        return {};
    }
};

template <Wrong wrong>
struct NetWith : Sequential<Input<6, 6, 3>, Named<"conv", Conv2d<8, 3>>, ReLU, Named<"scale", Scale<wrong>>,
                            MaxPool2d<3, 2>, Flatten, Named<"out", Linear<10>>> {};

struct EveryLayer : Sequential<Input<9, 8, 3>, Named<"conv1", Conv2d<8, 3, stride(2)>>, ReLU, LocalResponseNorm<2, 0.1>,
                               MaxPool2d<3, 2>, Named<"conv2", Conv2d<5, 3, no_bias>>, AvgPool2d<2>, Flatten,
                               Dropout<0.25>, Named<"hidden", Linear<12>>, ReLU, Named<"out", Linear<10>>> {};

}  // namespace

TEST_CASE("every layer of Cupola has correct gradients and keeps to the contract") {
    for (const int threads : {1, 2}) {
        const auto passes = [](const GradientCheck& check) {
            INFO(check.report());
            CHECK(static_cast<bool>(check));
        };
        const HostOptions device{.threads = threads};
        passes(check_gradients<Conv2d<16, 5>, Host>({9, 7, 3}, {}, device));
        passes(check_gradients<Conv2d<5, 3, stride(2), no_bias>, Host>({9, 7, 3}, {.batch = 1}, device));
        passes(check_gradients<Conv2d<5, 2, valid, stride(3)>, Host>({9, 8, 16}, {.batch = 3}, device));
        passes(check_gradients<Conv2d<8, kernel(3, 2), stride(2, 1), pad(1, 0), dilation(2, 1), groups(2)>, Host>(
            {9, 7, 4}, {.batch = 1}, device));
        passes(check_gradients<Conv2d<6, 3, dilation(2), depthwise, no_bias>, Host>({7, 9, 3}, {}, device));
        passes(check_gradients<Linear<10>, Host>({33}, {.batch = 7}, device));
        passes(check_gradients<Linear<7, no_bias>, Host>({20}, {}, device));
        passes(check_gradients<ReLU, Host>({9, 7, 3}, {}, device));
        passes(check_gradients<MaxPool2d<3, 2>, Host>({9, 8, 16}, {}, device));
        passes(check_gradients<MaxPool2d<2, 1, valid>, Host>({5, 5, 5}, {}, device));
        passes(check_gradients<AvgPool2d<3, 2>, Host>({9, 8, 16}, {}, device));
        passes(check_gradients<MaxPool2d<3, 2, pad(1)>, Host>({8, 7, 5}, {}, device));
        passes(check_gradients<AvgPool2d<3, 2, pad(1)>, Host>({8, 7, 5}, {}, device));
        passes(check_gradients<LocalResponseNorm<4>, Host>({5, 5, 64}, {}, device));
        passes(check_gradients<LocalResponseNorm<2, 0.5, 0.6>, Host>({5, 5, 5}, {}, device));
        passes(check_gradients<Flatten, Host>({5, 5, 16}, {}, device));
        passes(check_gradients<Dropout<0.5>, Host>({100}, {}, device));
        passes(check_gradients<Conv2d<5, 3, stride(2), pad(1), no_bias>, Host>({8, 7, 3}, {}, device));
        passes(check_gradients<BatchNorm2d<>, Host>({5, 7, 20}, {.batch = 3}, device));
        passes(check_gradients<BatchNorm2d<1e-3, 0.99>, Host>({4, 4, 3}, {.batch = 4}, device));
        passes(check_gradients<GlobalAvgPool2d, Host>({5, 7, 16}, {}, device));
        passes(check_gradients<Pad2d<1, 0, 2, 3>, Host>({4, 3, 5}, {}, device));
        passes(check_gradients<Crop2d<1, 0, 2, 1>, Host>({6, 5, 3}, {}, device));
        passes(check_gradients<AdaptiveAvgPool2d<3, 4>, Host>({7, 5, 3}, {.batch = 3}, device));
        passes(check_gradients<UpsampleBilinear2d<2>, Host>({3, 4, 5}, {}, device));
        passes(check_gradients<OptionAShortcut<20, 2>, Host>({6, 5, 16}, {}, device));
        passes(check_gradients<OptionAShortcut<5>, Host>({3, 4, 3}, {}, device));
    }
}

TEST_CASE("a user's own layer passes, and its errors are reported by name") {
    const GradientCheck check = check_gradients<Scale<>, Host>({3, 4, 5}, {.batch = 3});
    INFO(check.report());
    CHECK(check);
    CHECK(check.failures().empty());
    CHECK(check.subject().substr(check.subject().find(" on ")) == " on 3 x 4 x 5, batch 3, on Host");
    REQUIRE(check.tensors().size() == 6);
    CHECK(check.tensors()[0].name == "input");
    CHECK(check.tensors()[1].name == "scale");
    CHECK(check.tensors()[3].name == "with a ReLU inside, scale");
    CHECK(check.tensors()[5].name == "with a ReLU6 inside, scale");
    for (const GradientCheck::Tensor& tensor : check.tensors()) CHECK(tensor.error < 1e-4);
    CHECK(contains(check.report(), ": the gradients are correct (off by: input "));
}

TEST_CASE("a gradient with a wrong sign or scale is reported as such, with its worst element") {
    CHECK(contains(report<Wrong::parameter_sign>(),
                   "the gradient of scale has the wrong sign (off by 2, allowed 0.003); element "));
    CHECK(contains(report<Wrong::input_sign>(),
                   "the gradient of the input has the wrong sign (off by 2, allowed 0.003); element "));
    CHECK(contains(report<Wrong::parameter_scale>(), "the gradient of scale is 3 times what it should be"));
    CHECK(contains(report<Wrong::input_scale>(), "the gradient of the input is 0.5 times what it should be"));
    CHECK(contains(report<Wrong::parameter_zero>(), "the gradient of scale is zero, but the result depends on it"));
    CHECK_FALSE(contains(report<Wrong::parameter_sign>(), "the gradient of the input"));
}

TEST_CASE("a single wrong element is found and reported") {
    const std::string text = report<Wrong::last_element>();
    CHECK(contains(text, "the gradient of scale is not the derivative"));
    CHECK(contains(text, "element 4 (4): backward gives 0, finite differences give "));
}

TEST_CASE("a gradient that is overwritten instead of added, or the reverse, is reported as such") {
    CHECK(contains(report<Wrong::overwrites>(),
                   "backward overwrites the gradient of scale where `accumulate` asks it to add"));
    CHECK(contains(report<Wrong::adds>(),
                   "backward adds to the gradient of scale where `accumulate` is not set and it is to overwrite"));
}

TEST_CASE("an element that is never written is found") {
    CHECK(contains(report<Wrong::forgets_an_element>(), "backward left element 1 of the gradient of scale at nan"));
    CHECK(contains(report<Wrong::forward_forgets>(), "forward left element 7 of the output at nan"));
}

TEST_CASE("a layer that changes its input or parameters is found") {
    CHECK(contains(report<Wrong::forward_changes_input>(), "forward changed its input"));
    CHECK(contains(report<Wrong::backward_changes_output>(), "backward changed its output"));
    CHECK(contains(report<Wrong::changes_parameter>(), "backward changed scale"));
    CHECK(contains(report<Wrong::small_scratch>(),
                   "values were written outside its scratch memory, of which needs() asks for 4 bytes"));
}

TEST_CASE("a forward that differs from call to call is found") {
    CHECK(contains(report<Wrong::random>(),
                   "forward gave a different output the second time, from the same input and the same random numbers"));
}

TEST_CASE("a backward that is correct only with an input gradient is found") {
    CHECK(contains(report<Wrong::needs_input_gradient>(),
                   "without an input gradient to write, backward gives a different gradient of scale"));
    CHECK(contains(report<Wrong::other_gradient_for_first_layer>(),
                   "made for a build context without an input gradient, backward gives a different gradient of scale"));
    CHECK(contains(report<Wrong::not_in_place>(),
                   "written over the gradient of its output, as the traits allow, the gradient of the input differs"));
}

namespace {

struct WithoutLimit : ReLU {
    static constexpr Activation activation = Activation::relu6;
};

}  // namespace

TEST_CASE("wrong traits are found") {
    CHECK(
        contains(report<Wrong::reads_input_secretly>(),
                 "the traits say that backward does not read the input, and without it the gradient of scale differs"));
    CHECK(contains(
        report<Wrong::reads_output_secretly>(),
        "the traits say that backward does not read the output, and without it the gradient of scale differs"));
    CHECK(contains(report<Wrong::no_relu_inside>(), "with a ReLU inside, element "));
    CHECK(contains(report<Wrong::no_limit_inside>(), "with a ReLU6 inside, element "));
    CHECK(contains(
        report<Wrong::masks_again>(),
        "with a ReLU inside, with the mask applied by the layer after it, backward gives a different gradient of the input"));
    CHECK(
        contains(check_gradients<MaskOnlyInWords, Host>({50}).report(),
                 "the traits say that it applies the mask of a ReLU before it, but its input gradient is not masked"));
    CHECK(contains(check_gradients<ViewOfAnotherSize, Host>({3, 4, 5}).report(),
                   "it has the kind view and an output whose size differs from that of its input; its output is 59"));
    CHECK(contains(check_gradients<Elementwise<leaky, leaky_derivative, true>, Host>({50}).report(),
                   "its kind is a ReLU, but its output for -"));
    CHECK(contains(check_gradients<WithoutLimit, Host>({50}).report(), "its kind is a ReLU6, but its output for "));
}

TEST_CASE("smooth and piecewise linear functions pass, wrong derivatives and discontinuities do not") {
    const auto tanh_check = check_gradients<Elementwise<tanh_of, tanh_derivative>, Host>({100});
    INFO(tanh_check.report());
    CHECK(tanh_check);
    const auto leaky_check = check_gradients<Elementwise<leaky, leaky_derivative>, Host>({100});
    INFO(leaky_check.report());
    CHECK(leaky_check);
    CHECK(contains(check_gradients<Elementwise<tanh_of, wrong_tanh_derivative>, Host>({100}).report(),
                   "the gradient of the input is not the derivative"));
    CHECK(contains(check_gradients<Elementwise<zero, one>, Host>({100}).report(),
                   "the gradient of the input is not zero, but the result does not depend on it"));
    CHECK(contains(check_gradients<Elementwise<rounded, zero>, Host>({100}, {.step = 0.1}).report(),
                   "most outputs change too abruptly with the input for a derivative at a step of 0."));
}

TEST_CASE("a function that bends within a step is checked with shorter steps, and one percent of error is found") {
    const auto correct = check_gradients<Elementwise<recurrent, recurrent_derivative>, Host>({100});
    INFO(correct.report());
    CHECK(correct);
    const std::string wrong = check_gradients<Elementwise<recurrent, wrong_recurrent_derivative>, Host>({100}).report();
    CHECK(contains(wrong, "the gradient of the input is not the derivative (off by 0.011, allowed 0.003)"));
    CHECK(contains(wrong, "; steps tried: 0.0029, 0.00086, 0.00029, 8.6e-05, 2.9e-05"));
}

TEST_CASE("a function with a gradient of zero passes if backward gives zero") {
    CHECK(check_gradients<Elementwise<zero, zero>, Host>({10}));
    CHECK(check_gradients<Elementwise<same_of, one>, Host>({1}, {.batch = 1, .directions = 1}));
}

TEST_CASE("a check that cannot be done reports the reason") {
    CHECK(contains(message_of<InvalidArgument>([] { static_cast<void>(check_gradients<Scale<>, Host>({60})); }),
                   " expects height x width x channels; its input is 60"));
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(check_gradients<ReLU, Host>({60}, {.batch = 0})); }) ==
          "a check of gradients needs a batch of at least 1 sample, not 0");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(check_gradients<ReLU, Host>({60}, {.directions = 0}));
          }) == "a check of gradients needs at least 1 direction, not 0");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(check_gradients<EveryLayer, CrossEntropy<10>, Host>({.directions = 1}));
          }) == "a check of a network's gradients needs at least 2 directions, not 1");
}

TEST_CASE("the tutorial's network with its loss has correct gradients, including weight decay") {
    const GradientCheck check = check_gradients<Cifar10Net, Cifar10Loss, Host>({.directions = 4});
    INFO(check.report());
    CHECK(check);
    REQUIRE(check.tensors().size() == 11);
    CHECK(check.tensors()[0].name == "input");
    CHECK(check.tensors()[1].name == "conv1.weight");
}

TEST_CASE("a network of every kind of layer has correct gradients, fused and unfused") {
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}}) {
        const auto fused =
            check_gradients<EveryLayer, CrossEntropy<10>, Host>({.batch = 8, .seed = seed}, {.threads = 2});
        INFO(fused.report());
        CHECK(fused);
        const auto unfused =
            check_gradients<Unfused<EveryLayer>, LossCollection<CrossEntropy<10>, WeightDecay<0.1, "hidden">>, Host>(
                {.batch = 8, .seed = seed});
        INFO(unfused.report());
        CHECK(unfused);
        const auto smoothed =
            check_gradients<EveryLayer, CrossEntropy<10>, Host>({.seed = seed}, {}, {.label_smoothing = 0.1F});
        INFO(smoothed.report());
        CHECK(smoothed);
    }
}

TEST_CASE("a wrong layer inside a network is found by its effect on the layers before it") {
    const auto report_of = [](const GradientCheck& check) {
        CHECK_FALSE(check);
        return check.report();
    };
    CHECK(check_gradients<NetWith<Wrong::nothing>, CrossEntropy<10>, Host>());
    CHECK(contains(report_of(check_gradients<NetWith<Wrong::parameter_sign>, CrossEntropy<10>, Host>()),
                   "the gradient of scale.scale has the wrong sign"));
    const std::string below = report_of(check_gradients<NetWith<Wrong::input_scale>, CrossEntropy<10>, Host>());
    CHECK(contains(below, "the gradient of conv.weight is 0.5 times what it should be"));
    CHECK_FALSE(contains(below, "the gradient of scale.scale"));
    CHECK(contains(report_of(check_gradients<NetWith<Wrong::parameter_zero>, CrossEntropy<10>, Host>()),
                   "the gradient of scale.scale is zero, but the result depends on it"));
    CHECK(contains(report_of(check_gradients<NetWith<Wrong::last_element>, CrossEntropy<10>, Host>()),
                   "the gradient of scale.scale is not the whole derivative"));
    CHECK(contains(report_of(check_gradients<NetWith<Wrong::overwrites>, CrossEntropy<10>, Host>()),
                   "the gradient of scale.scale is not added to what is there where `accumulate` is set"));
    CHECK(contains(report_of(check_gradients<NetWith<Wrong::random>, CrossEntropy<10>, Host>()),
                   "the same step gave a different loss or gradient the second time"));
}

TEST_CASE("a wrong loss is found") {
    const GradientCheck check = check_gradients<NetWith<Wrong::nothing>, UnaveragedLoss, Host>({.batch = 4});
    CHECK_FALSE(check);
    CHECK(contains(check.report(), "the gradient of out.weight is 4 times what it should be"));
}
