// SPDX-License-Identifier: Apache-2.0
//
// GlobalAvgPool2d: the mean of each channel.
#include "../test.hpp"

#include <cupola/layers/global_avg_pool2d.hpp>

#include "../reference/pooling.hpp"
#include "layer_run.hpp"

static_assert(LayerOn<GlobalAvgPool2d, AnyDevice>);
static_assert(GlobalAvgPool2d::output(Shape{8, 6, 64}).shape == Shape{64});
static_assert(std::string_view(GlobalAvgPool2d::output(Shape{64}).error) == "expects height x width x channels");
static_assert(!traits_of<GlobalAvgPool2d>().backward_reads_input &&
              !traits_of<GlobalAvgPool2d>().backward_reads_output);

TYPED_TEST_CASE("GlobalAvgPool2d is the mean over height and width", D, DevicesAndElements) {
    for (const Shape& input : {Shape{8, 8, 64}, Shape{7, 4, 3}, Shape{1, 1, 5}}) {
        const std::uint64_t seed = reference::fresh_seed();
        CAPTURE(seed);
        const auto [problem, outcome] = layer_run::run<GlobalAvgPool2d, D>(input, 3, seed);
        const reference::Pooling r{3, reference::valid(input.height(), input.height(), 1),
                                   reference::valid(input.width(), input.width(), 1), input.channels(), false};
        CHECK(reference::distance(outcome.output, r.forward(problem.x)) < operation_run::tolerance<D>);
        CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.x)) <
              operation_run::tolerance<D>);
    }
}
