// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/pipeline/pipeline_passes.hpp
//
// An operation that fails in some part, pass and batch of a step: the step ends with its error on all devices, without
// an effect on the parameters, and the next one is computed.
#include <cupola/parallel/pipeline/pass_board.hpp>

#include "../../test.hpp"

#include <algorithm>
#include <atomic>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/pipeline.hpp>

#include "../../labelled_samples.hpp"
#include "../../throws_with.hpp"

using namespace cupola;

namespace {

/// How many calls of the failing layers remain until each fails; by the layer, twice: forward and backward.
std::atomic<int> calls_left[6];

struct FailingOnHost {
    std::int64_t elements;
    int which;

    void count(int pass) const {
        if (--calls_left[2 * which + pass] == 0) throw DataError(text("layer ", which, " failed in pass ", pass));
    }
    void forward(const ForwardArgs<Host>& args) const {
        count(0);
        std::copy_n(args.input, elements, args.output);
    }
    void backward(const BackwardArgs<Host>& args) const {
        count(1);
        if (args.input_gradient != nullptr) std::copy_n(args.output_gradient, elements, args.input_gradient);
    }
};
template <int which>
struct Failing {
    static constexpr LayerTraits traits{};
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static FailingOnHost operation(const BuildContext<Host>& build) {
        return {build.batch * build.input.size(), which};
    }
};

struct FaultsNet : Sequential<Input<6>, Linear<5>, Failing<0>, Sigmoid, Named<"second", Linear<5>>, Failing<1>, Sigmoid,
                              Named<"third", Linear<5>>, Failing<2>> {};
struct OneByOne : SplitAt<FaultsNet, "second", "third"> {};
struct AllForward : OneByOne {
    using PipelineTimetable = GPipe;
};

/// A layer is called 4 times in each direction of a step.
template <class N>
void check_faults(int count) {
    const LabelledSamples samples(60, {6}, 5);
    const auto batch = [&](std::int64_t place, int replica, HostContext&) {
        return samples.view((place * 5 + replica * 11) % 50, 4);
    };
    for (std::atomic<int>& each : calls_left) each = 0;
    DataParallel<N, CrossEntropy<5>, Sgd, ConcatMean, Host> training(
        {.replicas = 2, .devices = 3, .batch_size = 4, .gradient_accumulation_steps = 2});
    std::uint64_t seed = 9;
    for (int i = 0; i < count; ++i) {
        const std::vector<float> before = training.parameters();
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        const auto fault = static_cast<int>((seed >> 33) % 6), call = static_cast<int>((seed >> 40) % 4) + 1;
        calls_left[fault] = call;
        CAPTURE(fault);
        CAPTURE(call);
        CHECK(message_of<DataError>([&] { training.step(batch); }) ==
              text("layer ", fault / 2, " failed in pass ", fault % 2));
        calls_left[fault] = 0;
        REQUIRE(training.parameters() == before);
        training.step(batch);
    }
    DataParallel<FaultsNet, CrossEntropy<5>, Sgd, ConcatMean, Host> whole(
        {.replicas = 2, .batch_size = 4, .gradient_accumulation_steps = 2});
    for (int i = 0; i < count; ++i) whole.step(batch);
    CHECK(training.parameters() == whole.parameters());
}

}  // namespace

TEST_CASE("an operation that fails in any part ends the step on all devices with its error") {
    check_faults<OneByOne>(30);
    check_faults<AllForward>(30);
}
