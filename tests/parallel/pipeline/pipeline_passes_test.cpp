// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/pipeline.hpp, cupola/net/pipeline/chosen_split.hpp, cupola/parallel/pipeline/cut_diagnostic.hpp, cupola/parallel/pipeline/part_workers.hpp, cupola/parallel/pipeline/make_part_workers.hpp, cupola/parallel/pipeline/shared_plans.hpp
//
// Trainings of networks in parts: the bits, reports, states and errors of the network without its cuts.
#include <cupola/optim/clipped.hpp>
#include <cupola/parallel/pipeline/pipeline_passes.hpp>

#include "../../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../../instructions.hpp"
#include "../../labelled_samples.hpp"
#include "../../throws_with.hpp"
#include "../policies.hpp"
#include "ended_training.hpp"

using namespace cupola;

namespace {

/// All parts on one device, one batch after another: a device may have several parts.
struct OneDevice {
    static constexpr std::string_view name = "OneDevice";
    static constexpr std::size_t devices(std::size_t) { return 1; }
    static constexpr std::size_t device_of(std::size_t, std::size_t) { return 0; }
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t) { return 1; }
    static constexpr std::int64_t actions(std::size_t, std::size_t parts, std::int64_t batches) {
        return 2 * static_cast<std::int64_t>(parts) * batches;
    }
    static constexpr PipelineAction action(std::size_t, std::int64_t i, std::size_t parts, std::int64_t) {
        const auto count = static_cast<std::int64_t>(parts);
        const std::int64_t of_batch = i % (2 * count);
        if (of_batch < count) return {PipelineWork::forward, static_cast<std::size_t>(of_batch), i / (2 * count)};
        return {PipelineWork::backward, static_cast<std::size_t>(2 * count - 1 - of_batch), i / (2 * count)};
    }
};
/// As 1F1B, but backward is said to be divided.
struct ZeroBubble : OneForwardOneBackward {
    static constexpr std::string_view name = "ZeroBubble";
    static constexpr bool splits_backward = true;
};
/// Part 0 waits for a backward pass of the last part that comes after its own next forward pass.
struct Deadlock : OneForwardOneBackward {
    static constexpr std::string_view name = "Deadlock";
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t) { return 1; }
};

struct Net : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"norm1", BatchNorm2d<>>, ReLU,
                        Named<"block", Residual<Identity, Named<"a", Conv2d<4, 3>>, BatchNorm2d<>, ReLU, Conv2d<4, 3>>>,
                        ReLU, Dropout<0.5>, Named<"conv2", Conv2d<5, 3>>, BatchNorm2d<>, ReLU, MaxPool2d<2>, Flatten,
                        Named<"hidden", Linear<7>>, Sigmoid, Dropout<0.3>, Named<"out", Linear<5>>> {};
struct Halves : Split<Net, 2> {};
struct Thirds : SplitAt<Net, "block", "conv2"> {
    using PipelineTimetable = GPipe;
};
struct InTurn : SplitAt<Net, "block", "hidden", "out"> {
    using PipelineTimetable = OneDevice;
};
struct Locked : Split<Net, 3> {
    using PipelineTimetable = Deadlock;
};
struct Chosen : ChosenSplit<Net> {};
struct Net16 : InPrecision<MixedBFloat16, Net> {};
struct Chosen16 : InPrecision<MixedBFloat16, ChosenSplit<Net>> {};
struct Thirds16 : InPrecision<MixedBFloat16, SplitAt<Net, "block", "hidden">> {};
/// The first element of a gradient is in the second part.
struct Tuned : Frozen<Net, "conv1.*", "norm1.*"> {};
struct TunedHalves : Frozen<SplitAt<Net, "block">, "conv1.*", "norm1.*"> {};

using TheLoss = LossCollection<CrossEntropy<5>, WeightDecayAll<0.01>>;
template <class N, class A = ConcatMean>
using Training = DataParallel<N, TheLoss, Clipped<Sgd>, A, Host, Pooled>;

/// An operation that keeps its parameter in a member from the time when it is prepared, as one on another device does.
struct PreparedOnHost {
    std::int64_t elements;
    float factor = 0;

    void prepare(const ForwardArgs<Host>& args) { factor = args.parameters[0][0]; }
    void forward(const ForwardArgs<Host>& args) const {
        for (std::int64_t i = 0; i < elements; ++i) args.output[i] = factor * args.input[i];
    }
    void backward(const BackwardArgs<Host>& args) const {
        float sum = args.accumulate ? args.parameter_gradients[0][0] : 0;
        for (std::int64_t i = 0; i < elements; ++i) sum += args.input[i] * args.output_gradient[i];
        args.parameter_gradients[0][0] = sum;
        if (args.input_gradient == nullptr) return;
        for (std::int64_t i = 0; i < elements; ++i) args.input_gradient[i] = factor * args.output_gradient[i];
    }
};
struct Prepared {
    static constexpr LayerTraits traits{.backward_reads_input = true};
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape&) {
        return Parameter{.name = "factor", .shape = {1}, .initializer = constant(1)};
    }
    static PreparedOnHost operation(const BuildContext<Host>& build) { return {build.batch * build.input.size()}; }
};
struct PreparedNet : Sequential<Input<6, 6, 3>, Named<"conv", Conv2d<4, 3>>, Named<"first", Prepared>, Flatten, Sigmoid,
                                Named<"hidden", Linear<5>>, Named<"last", Prepared>> {};
struct PreparedHalves : SplitAt<PreparedNet, "hidden"> {};

/// As the batches of a data set: one of a replica replaces the one before in its memory.
struct Source {
    BatchView operator()(std::int64_t place, int replica, HostContext&) {
        if (place == failing_place && replica == 1) throw DataError("no samples today");
        const std::int64_t size = replica == 1 && place % 3 == 1 ? short_size : 4;
        if (size == 0) return {};
        const BatchView batch = samples.view((place * 5 + replica * 11) % 60, size);
        auto& [inputs, labels] = memory[static_cast<std::size_t>(replica)];
        inputs.assign(batch.inputs(), batch.inputs() + size * 108);
        labels.assign(batch.labels(), batch.labels() + size);
        if (place == spoiled_place && replica == 1) inputs[3] = spoiled;
        return {inputs.data(), labels.data(), size, samples.shape};
    }
    LabelledSamples samples{64, {6, 6, 3}, 5, 9};
    struct OfReplica {
        std::vector<float> inputs;
        std::vector<std::int32_t> labels;
    };
    std::vector<OfReplica> memory = std::vector<OfReplica>(4);
    std::int64_t short_size = 3, failing_place = -1, spoiled_place = -1;
    float spoiled = 0;
};

template <class T>
Ended run(int devices, const Sizes& shape = {}, int steps = 4) {
    T training(options_for<T>(devices, shape));
    Source source{.short_size = shape.short_size};
    const auto four = [&](std::int64_t i, int, HostContext&) { return source.samples.view(5 * i, 4); };
    return ended_after(training, steps, source, four, std::span(source.samples.inputs).first(324));
}

}  // namespace

TEST_CASE("a network in parts has the bits of the whole network, with each timetable and number of devices") {
    const Ended whole = run<Training<Net>>(1);
    CHECK(run<Training<Net>>(2) == whole);
    CHECK(run<Training<Halves>>(2) == whole);
    CHECK(run<Training<Halves>>(4) == whole);
    CHECK(run<Training<Thirds>>(3) == whole);
    CHECK(run<Training<Thirds>>(6) == whole);
    CHECK(run<Training<InTurn>>(1) == whole);
}
TEST_CASE("so it has with fewer batches than parts, with batches without samples, and with four replicas") {
    for (const Sizes shape : {Sizes{1, 1, 3}, Sizes{2, 1, 0}, Sizes{2, 3, 0}, Sizes{4, 2, 3}}) {
        CAPTURE(shape.replicas);
        CAPTURE(shape.accumulation);
        const Ended whole = run<Training<Net>>(1, shape);
        CHECK(run<Training<Halves>>(2, shape) == whole);
        CHECK(run<Training<Thirds>>(3, shape) == whole);
    }
}
TEST_CASE("so it has with frozen layers and with each kind of agreement") {
    CHECK(run<Training<TunedHalves>>(2) == run<Training<Tuned>>(1));
    CHECK(run<Training<TunedHalves>>(4) == run<Training<Tuned>>(2));
    CHECK(run<Training<Halves, MeanInDouble>>(4) == run<Training<Net, MeanInDouble>>(2));
    CHECK(run<Training<Halves, DeviceSum>>(4) == run<Training<Net, DeviceSum>>(2));
    CHECK(run<Training<Halves, LocalSgd>>(2) == run<Training<Net, LocalSgd>>(1));
    CHECK(run<Training<Halves, LocalSgd>>(4) == run<Training<Net, LocalSgd>>(2));
}
TEST_CASE("so it has with operations that keep what they are given when they are prepared") {
    CHECK(run<Training<PreparedHalves>>(2) == run<Training<PreparedNet>>(1));
}
TEST_CASE("so it has in bfloat16") {
    if (!computes_bfloat16()) return;
    const Ended whole = run<Training<Net16>>(1);
    CHECK(run<Training<Thirds16>>(3) == whole);
    CHECK(run<Training<Thirds16>>(6) == whole);
}
TEST_CASE("so it has with a cut that is chosen when the program runs, or with none") {
    const Ended whole = run<Training<Net>>(1);
    CHECK(run<Training<Chosen>>(1) == whole);
    CHECK(run<Training<Chosen>>(2) == whole);
    CHECK(run<Training<Chosen>>(2, {.cut = {.parts = 2}}) == whole);
    CHECK(run<Training<Chosen>>(6, {.cut = {.parts = 3, .timetable = by_timetable<GPipe>}}) == whole);
    if (computes_bfloat16()) CHECK(run<Training<Chosen16>>(3, {.cut = {.parts = 3}}) == run<Training<Net16>>(1));
}
TEST_CASE("a chosen cut has the figures of Split, and its errors where the training is made") {
    const auto of = []<class T>(T*, int devices, CutChoice cut) {
        T training(options_for<T>(devices, {.cut = cut}));
        return training.cut() == nullptr
                   ? std::string()
                   : training.cut()->parts_text(4) + training.cut()->step_text(3, 4) + to_string(training.memory());
    };
    Training<Chosen>* const chosen = nullptr;
    CHECK(of(chosen, 2, {}).empty());
    CHECK(of(chosen, 2, {.parts = 2}) == of(static_cast<Training<Halves>*>(nullptr), 2, {}));
    CHECK(contains(of(chosen, 2, {.parts = 2, .timetable = by_timetable<GPipe>}), "pipeline: 2 parts by GPipe, 3 "));
    const auto message = [](auto* training, int devices, CutChoice cut) {
        using T = std::remove_pointer_t<decltype(training)>;
        return message_of<InvalidArgument>([&] { T made(options_for<T>(devices, {.cut = cut})); });
    };
    CHECK(message(chosen, 4, {.parts = 3}) ==
          "a training of 2 replicas of a network in 3 parts must have 1 to 2 times 3 devices, not 4");
    CHECK(message(chosen, 1, {.parts = 0}) == "a network has at least one part, not 0");
    CHECK(message(chosen, 1, {.timetable = by_timetable<GPipe>}) ==
          "the option `cut` has 1 part and a timetable, which is for a network in parts");
    CHECK(message(chosen, 9, {.parts = 9}) == "Split makes 9 parts of a network that can be cut into at most 8");
    CHECK(message(static_cast<Training<Net>*>(nullptr), 2, {.parts = 2}) ==
          "the option `cut` has 2 parts, and the network is no ChosenSplit");
    DataParallel<Chosen, TheLoss, Clipped<Sgd>, ConcatMean, Host, Synchronized>* synchronized = nullptr;
    CHECK(message(synchronized, 2, {.parts = 2}) ==
          "Synchronized synchronizes the replicas inside a pass, and the parts of a network that is cut run the passes "
          "of several batches at a time: use FirstReplica, LastReplica, AllReplicas or Pooled");
    CHECK(of(synchronized, 2, {}).empty());
    CHECK(message(chosen, 2, {.parts = 2, .timetable = by_timetable<ZeroBubble>}) ==
          "the timetable ZeroBubble divides backward, which no plan of a network can do yet");
}
TEST_CASE("a state passes from a network in parts to the whole network, and back") {
    Training<Net> whole(options_for<Training<Net>>(2));
    Training<Thirds> parts(options_for<Training<Thirds>>(6));
    Source source;
    for (int s = 0; s < 2; ++s) whole.step(source);
    parts.restore(whole.state());
    for (int s = 0; s < 2; ++s) parts.step(source);
    whole.restore(parts.state());
    whole.step(source);
    Ended ended, straight;
    add_state(ended, whole);
    Training<Net> alone(options_for<Training<Net>>(1));
    for (int s = 0; s < 5; ++s) alone.step(source);
    add_state(straight, alone);
    CHECK(ended == straight);
}
TEST_CASE("the memory of a training in parts has the batches in flight") {
    Training<Net> whole(options_for<Training<Net>>(1));
    Training<Halves> halves(options_for<Training<Halves>>(4));
    const MemoryReport& memory = halves.memory();
    CHECK(memory.devices == 2);
    CHECK(memory.devices_of_group == 2);
    CHECK(memory.parts == 2);
    CHECK(memory.parameters == whole.memory().parameters);
    CHECK(memory.in_flight > memory.plan.total());
    CHECK(contains(to_string(memory), " = 2 groups of 2 x ("));
    CHECK(contains(to_string(memory), text(ByteCount{memory.in_flight}, " batches in 2 parts) + ")));
    CHECK(whole.memory().in_flight == 0);
}

TEST_CASE("the summary has the parts, whose times are not those of one network") {
    const std::string table = summary<Thirds>(4);
    CHECK(table.starts_with(summary<Net>(4)));
    CHECK(contains(table, "\npart 1 of 3: from layer 1 (conv1), 0."));
    CHECK(contains(table, "\npart 2 of 3: from layer 4 (Fork), 0."));
    CHECK(contains(table,
                   text(" of activations, ", ByteCount{4 * 36 * 4 * 4}, " from part 1\npart 3 of 3: from layer ")));
    CHECK(contains(CutInfoOf<Thirds>::value.step_text(2, 4),
                   "pipeline: 3 parts by GPipe, 2 batches per step: the devices wait in 0."));
    CHECK(contains(CutInfoOf<Thirds>::value.step_text(2, 4),
                   text("; batches in flight: 2, 2, 2; 8 copies between parts, ", ByteCount{4 * 4 * 4 * 36 * 8})));
    Training<Thirds> parts(options_for<Training<Thirds>>(6));
    CHECK(message_of<InvalidArgument>([&] {
              StepTimes times(Net::layers.size(), 1);
              parts.time_steps(&times);
          }) == "the parts of a network that is cut run at the same time: time the network without its cuts");
}

TEST_CASE("devices that are not whole groups and a timetable that deadlocks are errors") {
    const auto message = [](int devices, int replicas) {
        return message_of<InvalidArgument>(
            [&] { Training<Thirds> training(options_for<Training<Thirds>>(devices, {.replicas = replicas})); });
    };
    CHECK(message(4, 2) == "a training of 2 replicas of a network in 3 parts must have 1 to 2 times 3 devices, not 4");
    CHECK(message(9, 2) == "a training of 2 replicas of a network in 3 parts must have 1 to 2 times 3 devices, not 9");
    CHECK(message(1, 1) == "a training of 1 replica of a network in 3 parts must have 1 to 1 times 3 devices, not 1");
    CHECK(message(0, 1) == "a training of 1 replica of a network in 3 parts must have 1 to 1 times 3 devices, not 0");
    CHECK(contains(message_of<InvalidArgument>([] { Training<Locked> training(options_for<Training<Locked>>(3)); }),
                   "the timetable Deadlock of 3 parts and 4 batches deadlocks: action 1 of device 0, forward of part 0 "
                   "for batch 1, never begins; the part has 1 slots"));
    Training<Halves> halves(options_for<Training<Halves>>(2));
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(halves.parameters(2)); }) ==
          "device 2 is out of range: the number of devices is 2");
}

TEST_CASE("an error of a batch ends the step on all devices, and the next step is computed") {
    const auto check = []<class T>(T*, int devices) {
        T training(options_for<T>(devices));
        CHECK(contains(message_of<InvalidArgument>([&] { training.step(Source{.short_size = 2}); }),
                       "a batch has 2 samples, and plans were made for batch_size 4"));
        training.step(Source{});
        const std::vector<float> before = training.parameters();
        CHECK(message_of<DataError>([&] { training.step(Source{.failing_place = 3}); }) == "no samples today");
        CHECK(training.parameters() == before);
        training.step(Source{});
        Ended ended;
        add_state(ended, training);
        return ended;
    };
    const Ended whole = check(static_cast<Training<Net>*>(nullptr), 2);
    CHECK(check(static_cast<Training<Halves>*>(nullptr), 4) == whole);
    CHECK(check(static_cast<Training<Thirds>*>(nullptr), 3) == whole);
}

TEST_CASE("a loss and a gradient that are not finite have the errors of the whole network") {
    const auto errors = []<class T>(T*, int devices) {
        T training(options_for<T>(devices));
        std::vector<std::string> all;
        for (const float value : {impl::not_a_number<float>(), 3e38F}) {
            for (const std::int64_t place : {2, 3}) {
                Source source{.spoiled_place = place, .spoiled = value};
                all.push_back(message_of<DivergedError>([&] {
                    training.step(source);
                    training.step(source);
                }));
            }
        }
        return all;
    };
    const std::vector<std::string> whole = errors(static_cast<Training<Net>*>(nullptr), 2);
    for (const std::string& each : whole) CHECK(contains(each, " at step 1: "));
    CHECK(errors(static_cast<Training<Halves>*>(nullptr), 2) == whole);
    CHECK(errors(static_cast<Training<Thirds>*>(nullptr), 6) == whole);
    CHECK(errors(static_cast<Training<TunedHalves>*>(nullptr), 2) == errors(static_cast<Training<Tuned>*>(nullptr), 1));
}
