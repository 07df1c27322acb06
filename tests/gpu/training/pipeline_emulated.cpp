// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/cuda/part_copies.hpp, cupola/parallel/pipeline/part_columns.hpp
// Covers: cupola/parallel/pipeline/part_copies.hpp, cupola/parallel/pipeline/part_memory.hpp
//
// Trainings of networks in parts on `Cuda` with emulated GPUs: the bits, reports and states of the network without its
// cuts on one GPU.
#include "../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../../labelled_samples.hpp"
#include "../../parallel/pipeline/ended_training.hpp"
#include "../../throws_with.hpp"
#include "../emulator/control.hpp"

using namespace cupola;

namespace {

struct Net : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"norm1", BatchNorm2d<>>, ReLU,
                        Named<"block", Residual<Identity, Named<"a", Conv2d<4, 3>>, BatchNorm2d<>, ReLU, Conv2d<4, 3>>>,
                        ReLU, Dropout<0.5>, Named<"conv2", Conv2d<5, 3>>, BatchNorm2d<>, ReLU, MaxPool2d<2>, Flatten,
                        Named<"hidden", Linear<7>>, Sigmoid, Dropout<0.3>, Named<"out", Linear<5>>> {};
/// Every second part on the second device, the others on the first, one batch after another.
struct ThereAndBack {
    static constexpr std::string_view name = "ThereAndBack";
    static constexpr std::size_t devices(std::size_t) { return 2; }
    static constexpr std::size_t device_of(std::size_t part, std::size_t) { return part % 2; }
    static constexpr std::int64_t slot_count(std::size_t, std::size_t, std::int64_t) { return 1; }
    static constexpr std::int64_t parts_of(std::size_t device, std::size_t parts) {
        return static_cast<std::int64_t>((parts - device + 1) / 2);
    }
    static constexpr std::int64_t actions(std::size_t device, std::size_t parts, std::int64_t batches) {
        return 2 * parts_of(device, parts) * batches;
    }
    static constexpr PipelineAction action(std::size_t device, std::int64_t i, std::size_t parts, std::int64_t) {
        const std::int64_t count = parts_of(device, parts), place = i % (2 * count);
        const bool forward = place < count;
        const std::int64_t part = 2 * (forward ? place : 2 * count - 1 - place);
        return {forward ? PipelineWork::forward : PipelineWork::backward, static_cast<std::size_t>(part) + device,
                i / (2 * count)};
    }
};

struct Halves : SplitAt<Net, "conv2"> {};
struct Thirds : SplitAt<Net, "block", "conv2"> {
    using PipelineTimetable = GPipe;
};
struct Alternating : SplitAt<Net, "block", "conv2"> {
    using PipelineTimetable = ThereAndBack;
};
struct Quarters : SplitAt<Net, "block", "conv2", "hidden"> {
    using PipelineTimetable = ThereAndBack;
};
struct Chosen : ChosenSplit<Net> {};
/// Its parameters need more memory than everything else.
struct Wide
    : Sequential<Input<6, 6, 3>, Named<"conv", Conv2d<4, 3>>, BatchNorm2d<>, ReLU, Flatten, Named<"a", Linear<512>>,
                 Sigmoid, Named<"b", Linear<512>>, Sigmoid, Named<"c", Linear<512>>, Sigmoid, Named<"out", Linear<5>>> {
};
struct WideHalves : SplitAt<Wide, "c"> {};
/// The first part has no backward pass, and the first element of a gradient is in the second one.
struct Tuned : Frozen<InPrecision<MixedBFloat16, Net>, "conv1.*", "norm1.*", "conv2.*"> {};
struct TunedThirds
    : Frozen<InPrecision<MixedBFloat16, SplitAt<Net, "block", "conv2">>, "conv1.*", "norm1.*", "conv2.*"> {};

using TheLoss = LossCollection<CrossEntropy<5>, WeightDecayAll<0.01>>;
template <class N, class O = Sgd>
using Training = DataParallel<N, TheLoss, Clipped<O>, ConcatMean, Cuda, Pooled>;

/// Batches in memory that is not written again. The threads of two groups call it for different replicas.
struct Source {
    BatchView operator()(std::int64_t place, int replica, CudaContext&) {
        if (place == failing_place && replica == 1) throw DataError("no samples today");
        const std::int64_t size = replica == 1 && place % 3 == 1 ? short_size : 4;
        if (size == 0) return {};
        const BatchView batch = pinned((place * 5 + replica * 11) % 60, size, replica);
        if (place == spoiled_place && replica == 1) const_cast<float*>(batch.inputs())[3] = spoiled;
        return batch;
    }
    [[nodiscard]] BatchView pinned(std::int64_t first, std::int64_t size, int replica) {
        const BatchView batch = samples.view(first, size);
        constexpr std::size_t labels_at = 4096;
        std::deque<impl::CudaPinned>& of_replica = memory[static_cast<std::size_t>(replica)];
        of_replica.emplace_back(2 * labels_at);
        std::byte* const to = of_replica.back().data();
        std::memcpy(to, batch.inputs(), static_cast<std::size_t>(size) * 108 * sizeof(float));
        std::memcpy(to + labels_at, batch.labels(), static_cast<std::size_t>(size) * sizeof(std::int32_t));
        return {reinterpret_cast<const float*>(to), reinterpret_cast<const std::int32_t*>(to + labels_at), size,
                samples.shape};
    }

    explicit Source(std::int64_t size = 3) : short_size(size) {}
    std::int64_t short_size, failing_place = -1, spoiled_place = -1;
    float spoiled = 0;
    LabelledSamples samples{64, {6, 6, 3}, 5, 9};
    std::array<std::deque<impl::CudaPinned>, 2> memory{};
};

template <class T>
Ended run(int devices, const Sizes& shape = {}, int steps = 4) {
    T training(options_for<T>(devices, shape));
    Source source(shape.short_size);
    const auto four = [&](std::int64_t i, int replica, CudaContext&) { return source.pinned(5 * i, 4, replica); };
    const Ended ended = ended_after(training, steps, source, four, std::span(source.samples.inputs).first(324));
    CHECK(emulator::failure().empty());
    return ended;
}

/// Six GPUs while a test runs.
struct SixGpus {
    SixGpus() { emulator::set_devices(6); }
    SixGpus(const SixGpus&) = delete;
    SixGpus& operator=(const SixGpus&) = delete;
    ~SixGpus() {
        emulator::mend();
        emulator::set_devices(4);
        emulator::set_memory(std::size_t{1} << 32);
    }
};

}  // namespace

TEST_CASE("a network in parts on several GPUs has the bits of the whole network on one") {
    const SixGpus gpus;
    for (const Sizes shape : {Sizes{2, 2, 3}, Sizes{1, 1, 3}, Sizes{2, 3, 0}}) {
        CAPTURE(shape.replicas);
        CAPTURE(shape.accumulation);
        const Ended whole = run<Training<Net>>(1, shape);
        CHECK(run<Training<Halves>>(2, shape) == whole);
        CHECK(run<Training<Thirds>>(3, shape) == whole);
        CHECK(run<Training<Alternating>>(2, shape) == whole);
        CHECK(run<Training<Quarters>>(2, shape) == whole);
        if (shape.replicas == 1) continue;
        CHECK(run<Training<Halves>>(4, shape) == whole);
        CHECK(run<Training<Thirds>>(6, shape) == whole);
    }
}
TEST_CASE("so it has with a cut that is chosen when the program runs, or with none") {
    const SixGpus gpus;
    const Ended whole = run<Training<Net>>(1);
    CHECK(run<Training<Chosen>>(1) == whole);
    CHECK(run<Training<Chosen>>(2, {.cut = {.parts = 2}}) == whole);
    CHECK(run<Training<Chosen>>(6, {.cut = {.parts = 3, .timetable = by_timetable<GPipe>}}) == whole);
    CHECK(message_of<InvalidArgument>([] {
              Training<Chosen> training(options_for<Training<Chosen>>(4, {.cut = {.parts = 3}}));
          }) == "a training of 2 replicas of a network in 3 parts must have 1 to 2 times 3 devices, not 4");
}
TEST_CASE("so it has in bfloat16 with frozen layers, and where several steps are queued") {
    const SixGpus gpus;
    const Ended whole = run<Training<Tuned>>(1);
    CHECK(run<Training<TunedThirds>>(3) == whole);
    CHECK(run<Training<TunedThirds>>(6) == whole);
    const auto queued = []<class T>(T*, int devices) {
        auto options = options_for<T>(devices);
        options.loss_scale = LossScale{.initial = 8, .interval = 2};
        T training(options);
        std::vector<Source> sources(7);
        for (Source& each : sources) {
            training.queue(each);
            while (training.poll_report(2) != nullptr) {
            }
        }
        Ended ended;
        add_state(ended, training);
        return ended;
    };
    const Ended all = queued(static_cast<Training<Net>*>(nullptr), 1);
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        CAPTURE(seed);
        emulator::set_seed(seed);
        CHECK(queued(static_cast<Training<Halves>*>(nullptr), 4) == all);
        CHECK(queued(static_cast<Training<Thirds>*>(nullptr), 3) == all);
    }
}
TEST_CASE("a state passes from a network in parts on GPUs to the whole network, and back") {
    const SixGpus gpus;
    Training<Net> whole(options_for<Training<Net>>(1));
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
    CHECK(parts.not_captured() == "the passes: those of a network in parts are queued anew in each step");
    CHECK(parts.launches_description() == "");
}
TEST_CASE(
    "errors of a batch, of a loss and of a gradient are those of the whole network, and the next step is computed") {
    const SixGpus gpus;
    const auto check = []<class T>(T*, int devices) {
        T training(options_for<T>(devices));
        std::vector<std::string> errors;
        training.step(Source{});
        Source failing;
        failing.failing_place = 3;
        errors.push_back(message_of<DataError>([&] { training.step(failing); }));
        training.step(Source{});
        for (const float value : {impl::not_a_number<float>(), 3e38F}) {
            Source spoiled;
            spoiled.spoiled_place = 2 * training.step() + 1;
            spoiled.spoiled = value;
            errors.push_back(message_of<DivergedError>([&] { training.step(spoiled); }));
        }
        training.step(Source{});
        Ended ended;
        add_state(ended, training);
        return std::pair(errors, ended);
    };
    const auto whole = check(static_cast<Training<Net>*>(nullptr), 1);
    CHECK(whole.first.front() == "no samples today");
    CHECK(check(static_cast<Training<Halves>*>(nullptr), 4) == whole);
    CHECK(check(static_cast<Training<Thirds>*>(nullptr), 3) == whole);
}
TEST_CASE("a GPU that fails in some place of a step ends the training on all") {
    const SixGpus gpus;
    for (int i = 0; i < 12; ++i) {
        CAPTURE(i);
        {
            Training<Thirds> training(options_for<Training<Thirds>>(3));
            Source source;
            training.step(source);
            emulator::fail_device(i % 3, 5 + 41 * (i / 3));
            const std::string message = message_of<DeviceError>([&] {
                for (int s = 0; s < 3; ++s) training.step(source);
            });
            CAPTURE(message);
            CHECK(contains(message, text("on device ", i % 3)));
        }
        emulator::mend();
    }
}
TEST_CASE("the batches of a network that do not fit one GPU fit three, and the report has the bytes of each") {
    const SixGpus gpus;
    constexpr std::int64_t size = 512;
    impl::CudaPinned inputs(size * 108 * sizeof(float)), labels(size * sizeof(std::int32_t));
    std::memset(inputs.data(), 0, size * 108 * sizeof(float));
    std::memset(labels.data(), 0, size * sizeof(std::int32_t));
    const auto batch = [&](std::int64_t, int, CudaContext&) {
        return BatchView{reinterpret_cast<const float*>(inputs.data()),
                         reinterpret_cast<const std::int32_t*>(labels.data()), size, Shape{6, 6, 3}};
    };
    const auto large = []<class T>(T*, int devices) {
        auto options = options_for<T>(devices, {.replicas = 1, .accumulation = 1});
        options.batch_size = size;
        options.other_batch_sizes = {};
        return options;
    };
    const auto of_whole = large(static_cast<Training<Net>*>(nullptr), 1);
    const auto of_parts = large(static_cast<Training<Thirds>*>(nullptr), 3);
    std::vector<float> expected;
    std::size_t needed = 0;
    {
        Training<Net> training(of_whole);
        training.step(batch);
        expected = training.parameters();
        needed = training.memory().total();
        CHECK(training.memory().each_device.empty());
    }
    std::size_t most = 0;
    {
        Training<Thirds> training(of_parts);
        const MemoryReport& memory = training.memory();
        REQUIRE(memory.each_device.size() == 3);
        const std::vector<std::size_t>& each = memory.each_device;
        CHECK(each[0] + each[1] + each[2] == memory.total());
        CHECK(contains(to_string(memory), text("; on the devices of a group ", ByteCount{each[0]}, ", ",
                                               ByteCount{each[1]}, ", ", ByteCount{each[2]})));
        most = std::max({each[0], each[1], each[2]});
    }
    // A context has some memory beside.
    constexpr std::size_t rest = 500'000;
    CAPTURES(needed, most);
    REQUIRE(most + rest < needed);
    emulator::set_memory(most + rest);
    CHECK(contains(message_of<OutOfMemory>([&] { Training<Net> training(of_whole); }), "do not fit"));
    {
        Training<Thirds> training(of_parts);
        training.step(batch);
        CHECK(training.parameters() == expected);
    }
    emulator::set_memory(most - 1);
    CHECK(contains(message_of<OutOfMemory>([&] { Training<Thirds> training(of_parts); }), "do not fit"));
}
TEST_CASE("a network whose parameters do not fit one GPU trains on two, which have the bytes that were planned") {
    const SixGpus gpus;
    using Whole = Training<Wide, Adam>;
    using Parts = Training<WideHalves, Adam>;
    const auto with_scale = []<class T>(T*, int devices) {
        auto options = options_for<T>(devices);
        options.loss_scale = LossScale{.initial = 8, .interval = 2};
        return options;
    };
    const auto of_whole = with_scale(static_cast<Whole*>(nullptr), 1);
    Source source;
    const auto four = [&](std::int64_t i, int replica, CudaContext&) { return source.pinned(5 * i, 4, replica); };
    const auto end = [&](auto& training) {
        return ended_after(training, 3, source, four, std::span(source.samples.inputs).first(324));
    };
    TrainingState state;
    std::size_t needed = 0;
    const Ended expected = [&] {
        Whole training(of_whole);
        needed = training.memory().total();
        Ended ended = end(training);
        state = training.state();
        return ended;
    }();
    for (const int groups : {1, 2}) {
        CAPTURE(groups);
        const auto of_parts = with_scale(static_cast<Parts*>(nullptr), 2 * groups);
        // What contexts, queues and events have beside what was planned.
        constexpr std::size_t rest = 500'000;
        std::size_t most = 0;
        {
            std::vector<std::size_t> before(6);
            for (std::size_t gpu = 0; gpu < before.size(); ++gpu)
                before[gpu] = emulator::memory_in_use(static_cast<int>(gpu));
            Parts training(of_parts);
            const std::vector<std::size_t>& each = training.memory().each_device;
            REQUIRE(each.size() == 2);
            for (std::size_t gpu = 0; gpu < std::size_t{2} * groups; ++gpu) {
                const std::size_t used = emulator::memory_in_use(static_cast<int>(gpu)) - before[gpu];
                CAPTURES(gpu, used, each[gpu % 2]);
                CHECK(used >= each[gpu % 2]);
                CHECK(used <= each[gpu % 2] + rest);
            }
            CHECK(each[0] + each[1] == training.memory().total() / static_cast<std::size_t>(groups));
            most = std::max(each[0], each[1]) + rest;
        }
        CAPTURES(needed, most);
        REQUIRE(4 * most < 3 * needed);
        emulator::set_memory(most);
        CHECK(contains(message_of<OutOfMemory>([&] { Whole training(of_whole); }), "do not fit"));
        Parts training(of_parts);
        CHECK(end(training) == expected);
        // Both continue from a state of the other kind.
        training.restore(state);
        training.step(source);
        const std::vector<float> continued = training.parameters();
        emulator::set_memory(std::size_t{1} << 32);
        Whole whole(of_whole);
        whole.restore(state);
        whole.step(source);
        CHECK(whole.parameters() == continued);
        whole.restore(training.state());
        CHECK(whole.parameters() == continued);
    }
}
TEST_CASE("GPUs that cannot have memory together are an error, unless the parts share a GPU") {
    const SixGpus gpus;
    emulator::set_concurrent_managed(false);
    CHECK(contains(message_of<DeviceError>([] { Training<Halves> training(options_for<Training<Halves>>(2)); }),
                   "cannot use memory together with other GPUs"));
    auto options = options_for<Training<Halves>>(2);
    options.device.devices_per_gpu = 2;
    Training<Halves> training(options);
    training.step(Source{});
    CHECK(emulator::memory_in_use(1) == 0);
    emulator::set_concurrent_managed(true);
}
