// SPDX-License-Identifier: Apache-2.0
//
// BatchNorm2d: parameters, buffers and traits are known from the type, and its options reach the operation.
#include "../test.hpp"

#include <cupola/layers/batch_norm2d.hpp>

#include "../reference/batch_norm.hpp"
#include "layer_run.hpp"

namespace {

constexpr Shape image{6, 5, 20};
using Norm = BatchNorm2d<>;

static_assert(LayerOn<Norm, AnyDevice> && HasBuffers<Norm> && Norm::output(image).shape == image);
constexpr Parameters parameters = parameters_of<Norm>(image), buffers = buffers_of<Norm>(image);
static_assert(parameters.count == 2 && parameters.list[0].shape == Shape{20} && parameters.list[1].shape == Shape{20});
static_assert(std::string_view(parameters.list[0].name) == "weight" &&
              std::string_view(parameters.list[1].name) == "bias");
static_assert(parameters.list[0].initializer == constant(1) && parameters.list[1].initializer == constant(0));
static_assert(buffers.count == 2 && std::string_view(buffers.list[0].name) == "running_mean" &&
              std::string_view(buffers.list[1].name) == "running_var");
static_assert(buffers.list[0].initializer == constant(0) && buffers.list[1].initializer == constant(1));
static_assert(kind_of<Norm>() == LayerKind::batch_norm && kind_parts_of<Norm>().batch_norm.decay == 0.9 &&
              kind_parts_of<BatchNorm2d<1e-3, 0.997>>().batch_norm.decay == 0.997 &&
              kind_parts_of<BatchNorm2d<1e-3, 0.997>>().batch_norm.epsilon == 1e-3);
static_assert(traits_of<Norm>().absorbs_relu && traits_of<Norm>().backward_reads_input &&
              !traits_of<Norm>().backward_reads_output);
static_assert(ReducesStatistics<OperationOf<Norm, AnyDevice>>);

static_assert(std::string_view(Norm::output(Shape{20}).error) == "expects height x width x channels");
static_assert(std::string_view(BatchNorm2d<0>::output(image).error) ==
              "has an epsilon that is not positive and finite");
static_assert(std::string_view(BatchNorm2d<1e-5, 1>::output(image).error) == "has a decay outside [0, 1)");
static_assert(std::string_view(BatchNorm2d<1e-5, -0.1>::output(image).error) == "has a decay outside [0, 1)");

}  // namespace

TYPED_TEST_CASE("BatchNorm2d computes the operation of its template arguments", D, DevicesAndElements) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<BatchNorm2d<0.5>, D>(image, 3, seed);
    const reference::BatchNorm r{20, 0.5};
    const auto moments = r.moments(problem.x);
    const auto gradients = r.backward(problem.dy, problem.x, problem.parameters[0], outcome.output, moments);
    CHECK(reference::distance(outcome.output, r.forward(problem.x, problem.parameters[0], problem.parameters[1],
                                                        moments)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, gradients.input) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.parameter_gradients[0], gradients.weight) < reference::tolerance);
}
