// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/pipeline/pipeline_passes.hpp
//
// An operation that fails in some part, pass and batch of a step, has no memory, or computes a NaN: the step ends with
// its error on all devices, without an effect on the parameters, and the next one is computed.
#include <cupola/parallel/pipeline/pass_board.hpp>

#include "../../test.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/pipeline.hpp>

#include "../../labelled_samples.hpp"
#include "../../throws_with.hpp"

using namespace cupola;

namespace {

enum class Fault : std::uint8_t { exception, memory, not_finite };
constexpr int fault_kinds = 3;

/// The devices of a group in the training that takes a step.
std::atomic<int> devices_of_group = 1;
/// How many calls of the failing layers remain until each fails, in each of two groups, so that a call is always of the
/// same batch; by the layer, twice: forward and backward.
std::atomic<int> calls_left[2][6];
std::atomic<Fault> fault_of_calls;
/// The layer whose operations cannot be made; -1 for none.
std::atomic<int> not_made = -1;

struct FailingOnHost {
    std::int64_t elements;
    int which;

    void run(HostContext& context, int pass, const float* from, float* to) const {
        const bool fails = --calls_left[context.ordinal() / devices_of_group][2 * which + pass] == 0;
        if (fails && fault_of_calls == Fault::exception)
            throw DataError(text("layer ", which, " failed in pass ", pass));
        if (fails && fault_of_calls == Fault::memory)
            throw OutOfMemory(text("layer ", which, " has no memory in pass ", pass));
        if (to == nullptr) return;
        std::copy_n(from, elements, to);
        if (fails) to[0] = impl::not_a_number<float>();
    }
    void forward(const ForwardArgs<Host>& args) const { run(args.context, 0, args.input, args.output); }
    void backward(const BackwardArgs<Host>& args) const {
        run(args.context, 1, args.output_gradient, args.input_gradient);
    }
};
template <int which>
struct Failing {
    static constexpr LayerTraits traits{};
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static FailingOnHost operation(const BuildContext<Host>& build) {
        if (not_made == which) throw OutOfMemory(text("no memory for an operation of layer ", which));
        return {build.batch * build.input.size(), which};
    }
};

struct FaultsNet : Sequential<Input<6>, Linear<5>, Failing<0>, Sigmoid, Named<"second", Linear<5>>, Failing<1>, Sigmoid,
                              Named<"third", Linear<5>>, Failing<2>> {};
struct OneByOne : SplitAt<FaultsNet, "second", "third"> {};
struct AllForward : OneByOne {
    using PipelineTimetable = GPipe;
};

template <class N>
using Training = DataParallel<N, CrossEntropy<5>, Sgd, ConcatMean, Host>;

struct Batches {
    LabelledSamples samples{60, {6}, 5};
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        return samples.view((place * 5 + replica * 11) % 50, 4);
    }
};

template <class N>
const StepReport& step(Training<N>& training, const Batches& batches) {
    devices_of_group = static_cast<int>(part_count<N>);
    return training.step(batches);
}
/// The message of a step with a fault in a call of a group.
template <class N>
std::string message_with(Training<N>& training, const Batches& batches, Fault kind, std::atomic<int>& left, int call) {
    fault_of_calls = kind;
    left = call;
    std::string message;
    try {
        step(training, batches);
    } catch (const Error& error) {
        message = error.what();
    }
    left = 0;
    return message;
}

/// Faults drawn by a seed. A layer is called 4 times in each direction of a step, by one group or by two together.
template <class N>
void check_faults(int count, int groups) {
    const Batches batches;
    for (auto& of_group : calls_left) {
        for (std::atomic<int>& each : of_group) each = 0;
    }
    const auto options = [](int of_devices) {
        return typename Training<N>::Options{
            .replicas = 2, .devices = of_devices, .batch_size = 4, .gradient_accumulation_steps = 2};
    };
    Training<N> training(options(groups * 3));
    Training<FaultsNet> whole({.replicas = 2, .devices = groups, .batch_size = 4, .gradient_accumulation_steps = 2});
    std::uint64_t seed = 9;
    for (int i = 0; i < count; ++i) {
        const std::vector<float> before = training.parameters();
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        const auto fault = static_cast<int>((seed >> 33) % 6), place = static_cast<int>((seed >> 40) % 4);
        const int group = place % groups, call = place / groups + 1;
        const auto kind = static_cast<Fault>((seed >> 50) % fault_kinds);
        CAPTURE(fault);
        CAPTURE(group);
        CAPTURE(call);
        std::atomic<int>& left = calls_left[group][fault];
        const std::string message = message_with(training, batches, kind, left, call);
        if (kind == Fault::not_finite) {
            const std::string where = text(" at step ", training.step(), ": ");
            CHECK((contains(message, " is not finite" + where) || contains(message, " is nan" + where)));
        } else {
            CHECK(message == text("layer ", fault / 2, kind == Fault::memory ? " has no memory" : " failed",
                                  " in pass ", fault % 2));
        }
        CHECK(message_with(whole, batches, kind, left, call) == message);
        REQUIRE(training.parameters() == before);
        step(training, batches);
        step(whole, batches);
    }
    CHECK(training.parameters() == whole.parameters());
}

}  // namespace

TEST_CASE("an operation that fails in any part ends the step on all devices with its error") {
    check_faults<OneByOne>(70, 1);
    check_faults<AllForward>(70, 1);
}
TEST_CASE("so it does where there are two groups of devices") {
    check_faults<OneByOne>(30, 2);
    check_faults<AllForward>(30, 2);
}
TEST_CASE("a part without memory for its operations ends the making of the training with its error") {
    for (int which = 0; which < 3; ++which) {
        not_made = which;
        const auto message = message_of<OutOfMemory>(
            [] { Training<OneByOne> training({.replicas = 2, .devices = 6, .batch_size = 4}); });
        not_made = -1;
        CHECK(message == text("no memory for an operation of layer ", which));
    }
    Training<OneByOne> training({.replicas = 2, .devices = 6, .batch_size = 4});
    CHECK(step(training, Batches{}).samples == 8);
}
