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

/// How many calls of the failing layers remain until each fails; by the layer, twice: forward and backward.
std::atomic<int> calls_left[6];
std::atomic<Fault> fault_of_calls;
/// The layer whose operations cannot be made; -1 for none.
std::atomic<int> not_made = -1;

struct FailingOnHost {
    std::int64_t elements;
    int which;

    void run(int pass, const float* from, float* to) const {
        const bool fails = --calls_left[2 * which + pass] == 0;
        if (fails && fault_of_calls == Fault::exception)
            throw DataError(text("layer ", which, " failed in pass ", pass));
        if (fails && fault_of_calls == Fault::memory)
            throw OutOfMemory(text("layer ", which, " has no memory in pass ", pass));
        if (to == nullptr) return;
        std::copy_n(from, elements, to);
        if (fails) to[0] = impl::not_a_number<float>();
    }
    void forward(const ForwardArgs<Host>& args) const { run(0, args.input, args.output); }
    void backward(const BackwardArgs<Host>& args) const { run(1, args.output_gradient, args.input_gradient); }
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

/// The message of a step with a fault.
template <class N>
std::string message_with(Training<N>& training, const Batches& batches, Fault kind, int fault, int call) {
    fault_of_calls = kind;
    calls_left[fault] = call;
    std::string message;
    try {
        training.step(batches);
    } catch (const Error& error) {
        message = error.what();
    }
    calls_left[fault] = 0;
    return message;
}

/// Faults drawn by a seed. A layer is called 4 times in each direction of a step, in two groups by both.
template <class N>
void check_faults(int count, int devices) {
    const Batches batches;
    for (std::atomic<int>& each : calls_left) each = 0;
    const auto options = [](int of_devices) {
        return typename Training<N>::Options{
            .replicas = 2, .devices = of_devices, .batch_size = 4, .gradient_accumulation_steps = 2};
    };
    Training<N> training(options(devices));
    Training<FaultsNet> whole({.replicas = 2, .batch_size = 4, .gradient_accumulation_steps = 2});
    std::uint64_t seed = 9;
    for (int i = 0; i < count; ++i) {
        const std::vector<float> before = training.parameters();
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        const auto fault = static_cast<int>((seed >> 33) % 6), call = static_cast<int>((seed >> 40) % 4) + 1;
        auto kind = static_cast<Fault>((seed >> 50) % fault_kinds);
        // Groups count their calls together, and so the batch of a NaN is not always the same.
        if (kind == Fault::not_finite && devices > 3) kind = Fault::memory;
        CAPTURE(fault);
        CAPTURE(call);
        const std::string message = message_with(training, batches, kind, fault, call);
        if (kind == Fault::not_finite) {
            const std::string where = text(" at step ", training.step(), ": ");
            CHECK((contains(message, " is not finite" + where) || contains(message, " is nan" + where)));
        } else {
            CHECK(message == text("layer ", fault / 2, kind == Fault::memory ? " has no memory" : " failed",
                                  " in pass ", fault % 2));
        }
        CHECK(message_with(whole, batches, kind, fault, call) == message);
        REQUIRE(training.parameters() == before);
        training.step(batches);
        whole.step(batches);
    }
    CHECK(training.parameters() == whole.parameters());
}

}  // namespace

TEST_CASE("an operation that fails in any part ends the step on all devices with its error") {
    check_faults<OneByOne>(70, 3);
    check_faults<AllForward>(70, 3);
}
TEST_CASE("so it does where there are two groups of devices") {
    check_faults<OneByOne>(30, 6);
    check_faults<AllForward>(30, 6);
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
    CHECK(training.step(Batches{}).samples == 8);
}
