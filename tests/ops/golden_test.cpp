// SPDX-License-Identifier: Apache-2.0
//
// Operations against PyTorch's results (tests/golden, written by tests/golden/generate.py): a second oracle, by
// other people.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../devices.hpp"
#include "../golden/average_pool2d.hpp"
#include "../golden/batch_norm.hpp"
#include "../golden/conv2d.hpp"
#include "../golden/cross_entropy.hpp"
#include "../golden/embedding.hpp"
#include "../golden/linear.hpp"
#include "../golden/local_response_norm.hpp"
#include "../golden/max_pool2d.hpp"
#include "../golden/relu.hpp"
#include "operation_run.hpp"

using namespace cupola;
using operation_run::Outcome;
using operation_run::Problem;
using reference::distance;
using reference::Floats;

namespace {

std::int64_t number(std::size_t value) { return static_cast<std::int64_t>(value); }
Floats list(std::span<const float> values) { return {values.begin(), values.end()}; }

/// Cupola's window, and a check that its padding is the one that PyTorch was given.
WindowAxis axis(std::size_t input, const golden::Window& window, std::size_t pad_begin, std::size_t pad_end,
                std::size_t output) {
    const WindowAxis result = window_axis(number(input), number(window.kernel), number(window.stride),
                                          window.same ? Padding::same : Padding::valid);
    CHECK(result.output == number(output));
    CHECK(result.pad_begin == number(pad_begin));
    CHECK(result.pad_end == number(pad_end));
    return result;
}

template <class Case>
WindowAxis rows(const Case& c) {
    return axis(c.height, c.window, c.window.pad_top, c.window.pad_bottom, c.output_height);
}
template <class Case>
WindowAxis columns(const Case& c) {
    return axis(c.width, c.window, c.window.pad_left, c.window.pad_right, c.output_width);
}

template <class Case>
Problem problem_of(const Case& c, const Shape& input, const Shape& output, std::int64_t batch, int threads) {
    Problem problem;
    problem.input = input;
    problem.output = output;
    problem.batch = batch;
    problem.threads = threads;
    problem.x = list(c.input);
    problem.dy = list(c.output_gradient);
    if constexpr (requires { c.weights; }) {
        problem.parameters.push_back(list(c.weights));
        if (!c.biases.empty()) problem.parameters.push_back(list(c.biases));
    }
    return problem;
}

template <class Case>
void check(const Case& c, const Outcome& outcome) {
    CHECK(distance(outcome.output, c.output) < reference::tolerance);
    CHECK(distance(outcome.input_gradient, c.input_gradient) < reference::tolerance);
    if constexpr (requires { c.weights; }) {
        CHECK(distance(outcome.parameter_gradients[0], c.weight_gradient) < reference::tolerance);
        if (!c.biases.empty()) CHECK(distance(outcome.parameter_gradients[1], c.bias_gradient) < reference::tolerance);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("convolution gives PyTorch's values", D, golden_convolution) {
    for (const golden::Conv2dCase& c : golden::conv2d_cases) {
        for (const int threads : thread_counts<D>()) {
            INFO(std::string(c.name));
            const ConvolutionShape shape{rows(c), columns(c), number(c.channels), number(c.filters), !c.biases.empty()};
            const Problem problem = problem_of(c, {c.height, c.width, c.channels},
                                               {c.output_height, c.output_width, c.filters}, number(c.batch), threads);
            check(c, operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                      return ops::Convolution<D, float>(build, shape);
                  }));
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_convolution, Devices);

TEST_CASE_TEMPLATE_DEFINE("linear layers give PyTorch's values", D, golden_linear) {
    for (const golden::LinearCase& c : golden::linear_cases) {
        for (const int threads : thread_counts<D>()) {
            INFO(std::string(c.name));
            const LinearShape shape{number(c.inputs), number(c.outputs), !c.biases.empty()};
            const Problem problem = problem_of(c, {c.inputs}, {c.outputs}, number(c.batch), threads);
            check(c, operation_run::run<D>(
                         problem, [&](const BuildContext<D>& build) { return ops::Linear<D, float>(build, shape); }));
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_linear, Devices);

TEST_CASE_TEMPLATE_DEFINE("embeddings give PyTorch's values", D, golden_embedding) {
    for (const golden::EmbeddingCase& c : golden::embedding_cases) {
        for (const int threads : thread_counts<D>()) {
            INFO(std::string(c.name));
            Problem problem;
            problem.input = {c.ids_per_sample};
            problem.output = {c.ids_per_sample, c.width};
            problem.batch = number(c.batch);
            problem.threads = threads;
            const auto ids = std::as_bytes(c.ids);
            problem.column.assign(ids.begin(), ids.end());
            problem.dy = list(c.output_gradient);
            problem.parameters.push_back(list(c.table));
            const EmbeddingShape shape{number(c.count), number(c.width), c.padding};
            const Outcome outcome = operation_run::run<D>(
                problem, [&](const BuildContext<D>& build) { return ops::Embedding<D, float>(build, shape); });
            CHECK(distance(outcome.output, c.output) == 0);
            CHECK(distance(outcome.parameter_gradients[0], c.table_gradient) < reference::tolerance);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_embedding, Devices);

TEST_CASE_TEMPLATE_DEFINE("pooling gives PyTorch's values", D, golden_pooling) {
    const auto check_all = [](std::span<const golden::Pool2dCase> cases, PoolingKind kind) {
        for (const golden::Pool2dCase& c : cases) {
            for (const int threads : thread_counts<D>()) {
                INFO(std::string(c.name));
                const PoolingShape shape{rows(c), columns(c), number(c.channels), kind};
                const Problem problem =
                    problem_of(c, {c.height, c.width, c.channels}, {c.output_height, c.output_width, c.channels},
                               number(c.batch), threads);
                check(c, operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                          return ops::Pooling<D, float>(build, shape);
                      }));
            }
        }
    };
    check_all(golden::max_pool2d_cases, PoolingKind::max);
    check_all(golden::average_pool2d_cases, PoolingKind::average);
}
TEST_CASE_TEMPLATE_APPLY(golden_pooling, Devices);

TEST_CASE_TEMPLATE_DEFINE("local response normalisation gives PyTorch's values", D, golden_lrn) {
    for (const golden::LocalResponseNormCase& c : golden::local_response_norm_cases) {
        INFO(std::string(c.name));
        const LocalResponseNormShape shape{number(c.channels), number(c.depth_radius), c.bias, c.alpha, c.beta};
        const Shape extents{c.height, c.width, c.channels};
        check(c, operation_run::run<D>(
                     problem_of(c, extents, extents, number(c.batch), 2),
                     [&](const BuildContext<D>& build) { return ops::LocalResponseNorm<D, float>(build, shape); }));
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_lrn, Devices);

TEST_CASE_TEMPLATE_DEFINE("ReLU gives PyTorch's values", D, golden_relu) {
    for (const golden::ReLUCase& c : golden::relu_cases) {
        INFO(std::string(c.name));
        const Shape extents{c.input.size()};
        const Outcome outcome =
            operation_run::run<D>(problem_of(c, extents, extents, 1, 2),
                                  [](const BuildContext<D>& build) { return ops::Relu<D, float>(build); });
        CHECK(distance(outcome.output, c.output) == 0);
        CHECK(distance(outcome.input_gradient, c.input_gradient) == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_relu, Devices);

TEST_CASE_TEMPLATE_DEFINE("softmax cross-entropy gives PyTorch's values", D, golden_softmax) {
    for (const golden::CrossEntropyCase& c : golden::cross_entropy_cases) {
        INFO(std::string(c.name));
        typename D::Context context(0, device_options<D>(2));
        const auto forward = [&](std::span<const float> logits, std::span<const std::int32_t> labels, Floats& result) {
            operation_run::Guarded<D> z(context, list(logits)), gradient(context, logits.size_bytes());
            typename D::Arena label_memory(labels.size_bytes(), "a test");
            D::copy_from_host(context, label_memory.data(), reinterpret_cast<const std::byte*>(labels.data()),
                              labels.size_bytes());
            const ops::SoftmaxCrossEntropy<D, float> loss(number(c.classes), c.label_smoothing);
            const double sum =
                loss.forward(context, z.data(), reinterpret_cast<const std::int32_t*>(label_memory.data()),
                             number(labels.size()), gradient.data())
                    .sum;
            result = gradient.read();
            return sum;
        };
        Floats gradient;
        const double sum = forward(c.logits, c.labels, gradient);
        CHECK(sum / static_cast<double>(c.batch) == doctest::Approx(c.loss).epsilon(reference::tolerance));
        CHECK(distance(gradient, c.logits_gradient) < reference::tolerance);
        for (std::size_t n = 0; n < c.batch; ++n) {
            const double one = forward(c.logits.subspan(n * c.classes, c.classes), c.labels.subspan(n, 1), gradient);
            const auto expected = static_cast<double>(c.sample_losses[n]);
            CHECK(std::abs(one - expected) <= reference::tolerance * std::abs(expected) + 1e-7);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(golden_softmax, Devices);

TEST_CASE_TEMPLATE_DEFINE("batch normalisation and its running update agree with PyTorch", D, batch_norm_golden) {
    for (const golden::BatchNormCase& c : golden::batch_norm_cases) {
        for (const int threads : thread_counts<D>()) {
            INFO(c.name, ", threads ", threads);
            const Shape shape{number(c.height), number(c.width), number(c.channels)};
            Problem problem = problem_of(c, shape, shape, number(c.batch), threads);
            problem.activation = c.relu ? Activation::relu : Activation::none;
            problem.buffers = {list(c.mean_before), list(c.variance_before)};
            const auto run = [&] {
                return operation_run::run<D>(problem, [&](const BuildContext<D>& build) {
                    return ops::BatchNorm<D, float>(build, BatchNormShape{number(c.channels), c.epsilon});
                });
            };
            const Outcome outcome = run();
            check(c, outcome);
            const double elements = static_cast<double>(c.batch * c.height * c.width);
            for (const bool variance : {false, true}) {
                const std::span<const float> before = variance ? c.variance_before : c.mean_before;
                const std::span<const float> after = variance ? c.running_variance : c.running_mean;
                const Floats& batch = outcome.statistics[variance ? 1 : 0];
                Floats updated(c.channels);
                for (std::size_t i = 0; i < c.channels; ++i) {
                    const double unbiased =
                        static_cast<double>(batch[i]) * (variance ? elements / (elements - 1) : 1.0);
                    updated[i] =
                        static_cast<float>((1 - c.momentum) * static_cast<double>(before[i]) + c.momentum * unbiased);
                }
                CHECK(distance(updated, after) < reference::tolerance);
            }
            problem.training = problem.made_for_training = false;
            CHECK(distance(run().output, c.evaluated) < reference::tolerance);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(batch_norm_golden, Devices);
