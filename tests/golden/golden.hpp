// SPDX-License-Identifier: Apache-2.0
// The types of the golden figures: one struct per case, its arrays as spans. The figures are in the generated headers
// beside this one (golden/conv2d.hpp and so on, each defining one constexpr array of cases). PyTorch computed them in
// double from inputs that are exact floats, and they were then rounded; tests/golden/generate.py writes them. Activations
// are NHWC, convolution weights OHWI, linear weights [out, in], as in Cupola.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace golden {

// Padding is written out, since TensorFlow's SAME may put one more at the end than at the beginning.
struct Window {
    std::size_t kernel, stride;
    bool same;  // TensorFlow's SAME; otherwise VALID
    std::size_t pad_top, pad_left, pad_bottom, pad_right;
};

struct Conv2dCase {
    std::string_view name;
    std::size_t batch, height, width, channels, output_height, output_width, filters;
    Window window;
    std::span<const float> input, weights, biases, output;
    std::span<const float> output_gradient, input_gradient, weight_gradient, bias_gradient;
};

// `padding` is an id whose row is zeros, or -1.
struct EmbeddingCase {
    std::string_view name;
    std::size_t batch, ids_per_sample, count, width;
    std::int64_t padding;
    std::span<const std::int32_t> ids;
    std::span<const float> table, output, output_gradient, table_gradient;
};

struct LinearCase {
    std::string_view name;
    std::size_t batch, inputs, outputs;
    std::span<const float> input, weights, biases, output;
    std::span<const float> output_gradient, input_gradient, weight_gradient, bias_gradient;
};

// Padding never wins a maximum, and an average counts only what lies inside the image. With `ties`, equal maxima share
// a window, as after a ReLU; the gradient goes to the first of them in row order.
struct Pool2dCase {
    std::string_view name;
    std::size_t batch, height, width, channels, output_height, output_width;
    Window window;
    bool ties;
    std::span<const float> input, output, output_gradient, input_gradient;
};

// y[c] = x[c] / (bias + alpha * sum of x[k]^2 over |k - c| <= depth_radius)^beta: alpha is per element, as in
// TensorFlow.
struct LocalResponseNormCase {
    std::string_view name;
    std::size_t batch, height, width, channels, depth_radius;
    float bias, alpha, beta;
    std::span<const float> input, output, output_gradient, input_gradient;
};

struct ReLUCase {
    std::string_view name;
    std::span<const float> input, output, output_gradient, input_gradient;
};

// The loss is the mean over the batch of -sum_k q_k log softmax(logits)_k; q is (1 - s) at the label, plus s/classes
// everywhere.
struct CrossEntropyCase {
    std::string_view name;
    std::size_t batch, classes;
    float label_smoothing;
    std::span<const float> logits;
    std::span<const std::int32_t> labels;
    double loss;
    std::span<const float> sample_losses, logits_gradient;
};

// The loss is PyTorch's mean, and the gradient is that of this mean. `kind` is the name of Cupola's loss; of Huber's, with its
// delta. `weights` are those of the classes or of positives; one of `targets` and `labels` is empty.
struct LossCase {
    std::string_view name, kind;
    std::size_t batch, height, width, channels;
    float label_smoothing;
    bool ignores;
    std::int32_t ignored_label;
    std::span<const float> weights, outputs, targets;
    std::span<const std::int32_t> labels;
    double loss;
    std::span<const float> gradient;
};

// The gradients that the optimiser is handed at each step are part of the case ([steps, parameters], rows exact
// floats), so a test needs no model. `trace` is [steps, parameters]: the parameters after each step. Decay is coupled
// (added to the gradient, PyTorch's SGD) or decoupled (parameters *= 1 - learning_rate * decay before the update,
// PyTorch's AdamW).
struct SgdCase {
    std::string_view name;
    std::size_t steps, parameters;
    double learning_rate, momentum, weight_decay;
    bool nesterov, decoupled;
    std::span<const double> initial, gradients, trace;
};

// Like SgdCase, for every optimiser: the parameters are two tensors, of `first` elements and of the rest, and l2 * w of the
// first is part of the loss's gradient, which is clipped to a norm over both tensors and to a value (0: not clipped) before
// the optimiser's step. `trace` is by PyTorch in double, `float_trace` by PyTorch in float. `numbers` are the optimiser's:
//   sgd       rate, momentum, decay, 1 for Nesterov
//   adam      rate, beta1, beta2, epsilon, decay
//   adamw     rate, beta1, beta2, epsilon, decay
//   rmsprop   rate, decay of the mean square, momentum, epsilon, decay, start; TensorFlow's rule, which PyTorch does not have:
//             computed by numpy in double and in float, and compared with TensorFlow's own
struct OptimizerCase {
    std::string_view name, kind;
    std::size_t steps, parameters, first;
    std::span<const double> numbers;
    double l2, max_norm, max_value;
    std::span<const float> initial, gradients, trace, float_trace;
};

// Averages of `parameters` numbers after each step; the parameters after each step are given: [steps, parameters].
struct MovingAverageCase {
    std::string_view name;
    std::size_t steps, parameters;
    double decay;
    std::span<const float> initial, values, trace;
};

// The rate that holds during step steps[i] (steps count from 0, the rate at step 0 is the initial one). `kind` is one
// of
//   exponential_staircase  numbers = initial, factor, steps a decay
//   step                   numbers = initial, factor, steps a decay (PyTorch's StepLR)
//   piecewise              numbers = boundary 1, ..., boundary n, rate 1, ..., rate n + 1; the new rate holds from the
//                          boundary's own step on (PyTorch's MultiStepLR; TensorFlow's holds the old one for that step
//                          too)
//   cosine                 numbers = initial, final, steps (PyTorch's CosineAnnealingLR)
//   warm_up                numbers = initial, factor, steps (PyTorch's LinearLR from 1 / factor of factor times the initial)
struct ScheduleCase {
    std::string_view name, kind;
    std::span<const double> numbers;
    std::span<const std::int64_t> steps;
    std::span<const double> rates;
};

// One training step of the tutorial's whole network. Its million parameters and its images are not listed: both are
// `uniform(seed, index)` below, scaled, with one seed an array, so the figures fit on a page.
struct NetworkParameter {
    std::string_view name;  // in the order of the list, weights before biases
    std::size_t size;
    std::uint32_t seed;
    float scale;  // value i is scale * uniform(seed, i)
    double gradient_norm;
    std::span<const std::size_t> places;  // a few places of the gradient, and
    std::span<const float> gradient;      // its figures there
};

struct NetworkCase {
    std::string_view name;
    std::size_t batch;
    std::uint32_t image_seed;
    float image_scale;
    std::span<const std::int32_t> labels;
    std::span<const float> logits;
    double cross_entropy, local3_decay, local4_decay, total;
    std::span<const NetworkParameter> parameters;
};

// Training: `output`, the gradients and the running statistics after the step; `evaluated` is the output that the ones
// before it give. PyTorch's momentum is what comes in, its running variance the unbiased one.
struct BatchNormCase {
    std::string_view name;
    std::size_t batch, height, width, channels;
    bool relu;
    double epsilon, momentum;
    std::span<const float> input, weights, biases, mean_before, variance_before, output_gradient, output;
    std::span<const float> input_gradient, weight_gradient, bias_gradient, running_mean, running_variance, evaluated;
};

// One training step of ResNet<8>, and the logits that the running statistics give after it. Parameters and images are
// made as the tutorial's network's, with one more in a batch norm's weights.
struct ResNetCase {
    std::string_view name;
    std::size_t batch;
    std::uint32_t image_seed;
    float image_scale;
    double momentum;
    std::span<const std::int32_t> labels;
    std::span<const float> logits;
    double cross_entropy;
    std::span<const float> buffers;  // mean and variance of each batch norm in the order of the list
    std::span<const float> evaluated;
    std::span<const NetworkParameter> parameters;
};

// A number in [-1, 1), a multiple of 2^-23, and so the same in every language: the murmur3 finaliser of seed and index.
constexpr float uniform(std::uint32_t seed, std::uint32_t index) {
    std::uint32_t bits = index * 0x9E3779B9u + seed * 0x85EBCA6Bu + 0x2545F491u;
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6Bu;
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35u;
    bits ^= bits >> 16;
    return static_cast<float>(static_cast<std::int32_t>(bits >> 8) - (1 << 23)) / static_cast<float>(1 << 23);
}

}  // namespace golden
