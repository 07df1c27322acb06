// SPDX-License-Identifier: Apache-2.0
//
// Work that is joined into one kernel, on the emulator: its results have the bits of the same work queued piece by piece, and
// it runs before the work that is queued after it.
#include "../test.hpp"

#include <deque>

#include <cupola/cuda.hpp>
#include <cupola/device/cuda/graph.hpp>
#include <cupola/layers.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "../devices.hpp"
#include "../optim/each_optimizer.hpp"
#include "../reference/compare.hpp"
#include "emulator/control.hpp"

using reference::Floats, reference::same_bits;

namespace {

Floats normal(std::int64_t count, std::uint64_t seed) { return reference::Random(seed).normal(count); }

/// Arrays of `Floats` begin at a multiple of 16 bytes.
constexpr std::int64_t arena = 2000;

struct Arenas {
    Floats w = normal(arena, 1), g = normal(arena, 2), average = normal(arena, 4), state = Floats(2 * arena, 0.1F);

    bool operator==(const Arenas& other) const {
        return same_bits(w, other.w) && same_bits(average, other.average) && same_bits(state, other.state);
    }
};

template <class O>
Update<Cuda> update_of(CudaContext& cuda, Arenas& a, std::span<const Segment> segments) {
    return {.context = cuda,
            .parameters = a.w.data(),
            .gradient = a.g.data(),
            .state = a.state.data(),
            .elements = arena,
            .segments = segments,
            .step = 3};
}

/// The update of all segments and then the averages, as the training queues them, and piece by piece.
template <class O>
void expect_joined(const O& optimizer, std::span<const Segment> segments, std::int64_t kernels) {
    CudaContext cuda(0, {});
    const MovingAverage moving{.decay = 0.9};
    Arenas joined, apart;
    const std::int64_t before = emulator::kernels();
    update_parameters(optimizer, update_of<O>(cuda, joined, segments));
    moving.update<Cuda>(cuda, joined.average.data(), joined.w.data(), arena, 2);
    cuda.synchronize();
    CHECK(emulator::kernels() - before == kernels);
    for (const Segment& segment : segments) {
        update_parameters(optimizer, update_of<O>(cuda, apart, {&segment, 1}));
        cuda.launch_joined();
    }
    cuda.launch_joined();
    moving.update<Cuda>(cuda, apart.average.data(), apart.w.data(), arena, 2);
    cuda.synchronize();
    CHECK(joined == apart);
    CHECK(same_bits(joined.w, Arenas().w) == segments.empty());
    CHECK(!same_bits(joined.average, Arenas().average));
}

/// Segments of different coefficients with gaps between them, as frozen parameters leave; each begins at `line` elements.
std::vector<Segment> segments_of(int count, std::int64_t line, std::int64_t size) {
    std::vector<Segment> result;
    for (int k = 0; k < count; ++k)
        result.push_back({.offset = line * (2 * k + 1), .size = size, .l2 = 0.001 * k, .rank = 4});
    return result;
}

}  // namespace

TEST_CASE("the updates of several segments and the moving averages are one kernel with the bits of several") {
    for (const std::int64_t size : {1, 15, 16}) {
        CAPTURE(size);
        expect_joined(Sgd{.learning_rate = 0.1}, segments_of(5, 16, size), 1);
        expect_joined(Sgd{.learning_rate = 0.1, .momentum = 0.9}, segments_of(5, 16, size), 1);
        expect_joined(Adam{.learning_rate = 0.1}, segments_of(5, 16, size), 1);
    }
    expect_joined(Sgd{.learning_rate = 0.1}, {}, 1);
}

TEST_CASE("updates that one kernel cannot contain are several") {
    // 16 segments are in one kernel, the averages in that of the last.
    expect_joined(Sgd{.learning_rate = 0.1, .momentum = 0.9}, segments_of(33, 16, 13), 3);
    // Parameters that no pack begins with: their averages are computed after them.
    expect_joined(Sgd{.learning_rate = 0.1, .momentum = 0.9}, segments_of(5, 7, 6), 2);
    // A rate that depends on norms needs three kernels per segment.
    expect_joined(Lars{.learning_rate = 0.1}, segments_of(2, 16, 16), 2 * 3 + 1);
}

TEST_CASE("a second update of the same parameters waits for the first, and joined work does nothing once not healthy") {
    CudaContext cuda(0, {});
    const std::vector<Segment> segments = segments_of(3, 16, 16);
    const Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    Arenas twice, apart;
    for (int i = 0; i < 2; ++i) update_parameters(sgd, update_of<Sgd>(cuda, twice, segments));
    cuda.synchronize();
    for (int i = 0; i < 2; ++i) {
        update_parameters(sgd, update_of<Sgd>(cuda, apart, segments));
        cuda.synchronize();
    }
    CHECK(twice == apart);
    std::int32_t healthy = 0;
    cuda.set_step_scalars({.healthy = &healthy});
    update_parameters(sgd, update_of<Sgd>(cuda, twice, segments));
    MovingAverage{.decay = 0.9}.update<Cuda>(cuda, twice.average.data(), twice.w.data(), arena, 2);
    cuda.synchronize();
    CHECK(twice == apart);
}

TEST_CASE("the mean and the sums of squares after it are one kernel with the bits of several") {
    for (const std::int64_t count : {1, 5, 1024, 5000}) {
        for (const std::size_t start : {0, 1}) {
            CAPTURES(count, start);
            CudaContext cuda(0, {});
            const Floats sums = normal(count + 1, 1), w = normal(6000, 2);
            Floats mean(sums.size()), expected(sums.size());
            const float divisor = 3;
            std::int32_t healthy = 1;
            std::vector<double> squares(20), expected_squares(20);
            const auto part = [&](std::size_t k) { return std::span(w).subspan(3 * k, 5000 / (k + 1)); };
            for (const int turn : {0, 1}) {  // the counters of the blocks are 0 again in the second
                CAPTURE(turn);
                const std::int64_t before = emulator::kernels();
                ops::TrainingStep<Cuda>::mean(cuda, std::span(sums).subspan(start, static_cast<std::size_t>(count)),
                                              &divisor, std::span(mean).subspan(start, static_cast<std::size_t>(count)),
                                              &healthy);
                for (std::size_t k = 0; k < 16; ++k)
                    ops::TrainingStep<Cuda>::sum_of_squares(cuda, part(k), &squares[k]);
                cuda.synchronize();
                CHECK(emulator::kernels() - before == 1);
                for (std::size_t k = 16; k < 20; ++k) squares[k] = 0;
                for (std::size_t k = 0; k < 20; ++k) {
                    ops::TrainingStep<Cuda>::sum_of_squares(cuda, part(k), &squares[k]);  // more than one kernel takes
                    queue_sum_of_squares(cuda, part(k), &expected_squares[k]);
                }
                cuda.synchronize();
                CHECK(squares == expected_squares);
                for (std::size_t i = start; i < start + static_cast<std::size_t>(count); ++i)
                    expected[i] = sums[i] / divisor;
                CHECK(same_bits(mean, expected));
                CHECK(healthy == 1);
            }
        }
    }
}

TEST_CASE("the block of a sum that arrives last adds what the others have written, in whatever order they run") {
    CudaContext cuda(0, {});
    emulator::run_side_by_side_in(1);
    for (std::uint64_t i = 0; i < 40; ++i) {
        const Floats values = normal(4 * 1024, i);
        double sum = 0, expected = 0;
        ops::TrainingStep<Cuda>::sum_of_squares(cuda, values, &sum);
        queue_sum_of_squares(cuda, values, &expected);
        cuda.synchronize();
        CHECK(sum == expected);
    }
    emulator::run_side_by_side_in(8);
}

TEST_CASE_TEMPLATE("conversions in a row are one kernel with the bits of several", T, BFloat16, Float16) {
    CudaContext cuda(0, {});
    Floats from = normal(3000, 1);
    from[7] = std::numeric_limits<float>::quiet_NaN();
    from[9] = -std::numeric_limits<float>::infinity();
    std::vector<T> to(from.size() + 8), expected(from.size() + 8);
    const auto convert = [&](std::vector<T>& result, const auto& run) {
        std::size_t begin = 0;
        for (const std::size_t count : {1, 8, 0, 23, 9, 1000, 64}) {  // some begin beside a multiple of 16 bytes
            run(from.data() + begin, result.data() + begin, static_cast<std::int64_t>(count));
            begin += count;
        }
        for (; begin + 40 < from.size(); begin += 40) run(from.data() + begin, result.data() + begin, 40);
    };
    const std::int64_t before = emulator::kernels();
    convert(to, [&](auto... args) { ops::Convert<Cuda>::run_joined(cuda, args...); });
    cuda.synchronize();
    CHECK(emulator::kernels() - before == 2);  // 32 arrays each
    convert(expected, [&](auto... args) { ops::Convert<Cuda>::run(cuda, args...); });
    cuda.synchronize();
    CHECK(std::memcmp(to.data(), expected.data(), to.size() * sizeof(T)) == 0);
}

TEST_CASE("joined work runs before the work that is queued after it, on the stream of its time") {
    CudaContext cuda(0, {});
    const Floats from = normal(64, 1);
    std::vector<BFloat16> to(64);
    Floats back(64), expected(64);
    for (std::size_t i = 0; i < 64; ++i) expected[i] = static_cast<float>(static_cast<BFloat16>(from[i]));
    ops::Convert<Cuda>::run_joined(cuda, from.data(), to.data(), 64);
    ops::Convert<Cuda>::run(cuda, to.data(), back.data(), 64);
    cuda.synchronize();
    CHECK(same_bits(back, expected));
    impl::CapturedWork captured;
    to.assign(64, {});
    const auto convert = [&] { ops::Convert<Cuda>::run_joined(cuda, from.data(), to.data(), 64); };
    captured.capture(cuda, convert);
    CHECK(captured.launches() == 1);
    cuda.synchronize();
    CHECK(to[0].bits == 0);
    captured.launch(cuda);
    cuda.synchronize();
    CHECK(static_cast<float>(to[63]) == expected[63]);
    // Work of a capture that failed is not launched later.
    to.assign(64, {});
    const auto fail = [&] {
        convert();
        throw DeviceError("no");
    };
    captured.capture(cuda, fail);
    CHECK(!captured.captured());
    cuda.synchronize();
    CHECK(to[63].bits == 0);
}

TEST_CASE("the first kernel of captured work gets other arguments, which launches that are queued do not have") {
    CudaContext cuda(0, {});
    std::int32_t value = 0, other = 0, healthy = 1;
    std::vector<std::int32_t> copies(4);
    impl::JoinedWrites writes;
    writes.add(reinterpret_cast<std::uint32_t*>(&value), &healthy, 1);
    impl::CapturedWork captured;
    captured.capture(cuda, [&] {
        writes.launch(cuda);
        impl::queue_copy_to_pinned(cuda, &value, copies.data(), sizeof(value));
    });
    REQUIRE(captured.captured());
    REQUIRE(captured.begins_with_kernel());
    emulator::set_eager(false);
    captured.launch(cuda);
    for (const std::int32_t to : {5, 6}) {
        impl::queue_copy_to_pinned(cuda, copies.data(), copies.data() + to - 4, sizeof(value));
        impl::JoinedWrites next;
        next.add(reinterpret_cast<std::uint32_t*>(&value), &to, 1);
        if (to == 6) next.add(reinterpret_cast<std::uint32_t*>(&other), &to, 1);
        next.replace_first_of(captured, cuda);
        captured.launch(cuda);
    }
    emulator::set_eager(true);
    cuda.synchronize();
    CHECK(copies == std::vector<std::int32_t>{6, 1, 5, 0});
    CHECK(other == 6);
    CudaArena memory(sizeof(value), "a test");
    captured.capture(cuda, [&] { cuda.queue_copy(memory.data(), memory.data(), sizeof(value)); });
    REQUIRE(captured.captured());
    CHECK(!captured.begins_with_kernel());
    CHECK_THROWS_AS(writes.replace_first_of(captured, cuda), InvalidArgument);
}

TEST_CASE("writes and the batch after them are one kernel, and nothing is written twice in it") {
    CudaContext cuda(0, {});
    const Floats samples = normal(12, 1);
    const std::int32_t labels[3] = {1, 2, 3};
    const BatchView batch{samples.data(), labels, 3, Shape{4}};
    Floats to(12);
    std::int32_t to_labels[3] = {}, healthy = 0, other = 0;
    BatchSpan taken(batch.columns());
    taken.set_data(0, reinterpret_cast<std::byte*>(to.data()));
    taken.set_data(1, reinterpret_cast<std::byte*>(to_labels));
    const auto kernels_of = [&](const auto& queue) {
        const std::int64_t before = emulator::kernels();
        queue();
        cuda.synchronize();
        return emulator::kernels() - before;
    };
    std::uint64_t word = 0;
    healthy = 1;
    CHECK(kernels_of([&] {
              impl::queue_set(cuda, &word, std::uint64_t{1} << 40);
              impl::queue_set(cuda, &other, 5);
              impl::queue_take_batch(cuda, batch, taken, &healthy);
          }) == 1);
    CHECK(word == std::uint64_t{1} << 40);
    CHECK(other == 5);
    CHECK(same_bits(to, samples));
    CHECK(to_labels[2] == 3);
    // The batch reads what a write before it changes.
    std::fill(to.begin(), to.end(), 0.0F);
    healthy = 0;
    CHECK(kernels_of([&] {
              impl::queue_set(cuda, &healthy, 1);
              impl::queue_take_batch(cuda, batch, taken, &healthy);
          }) == 2);
    CHECK(same_bits(to, samples));
    // A second write to the same address is the one that counts; writes after a batch are not before it.
    CHECK(kernels_of([&] {
              impl::queue_set(cuda, &other, 6);
              impl::queue_set(cuda, &other, 7);
              impl::queue_take_batch(cuda, batch, taken, &healthy);
              impl::queue_set(cuda, &word, std::uint64_t{9});
          }) == 3);
    CHECK(other == 7);
    CHECK(word == 9);
    // More writes than one kernel has.
    std::vector<std::int32_t> many(40);
    CHECK(kernels_of([&] {
              for (std::size_t i = 0; i < many.size(); ++i)
                  impl::queue_set(cuda, &many[i], static_cast<std::int32_t>(i));
          }) == 3);
    for (std::size_t i = 0; i < many.size(); ++i) CHECK(many[i] == static_cast<std::int32_t>(i));
}

TEST_CASE_TEMPLATE("a batch is rounded as it is taken", T, BFloat16, Float16) {
    CudaContext cuda(0, {});
    for (const std::size_t start : {0, 1}) {
        for (const std::int64_t size : {1, 3, 4}) {
            for (const bool first : {true, false}) {
                CAPTURES(start, size, first);
                constexpr std::int64_t features = 7;
                const auto count = static_cast<std::size_t>(size * features);
                const Floats samples = normal(static_cast<std::int64_t>(count + start), 1);
                std::vector<std::int32_t> labels(static_cast<std::size_t>(size), 3);
                const Column input{{input_column, ElementType::float32, {features}}, samples.data() + start},
                    target{{target_column, ElementType::int32, {}}, labels.data()};
                const BatchView batch = first ? BatchView(size, {input, target}) : BatchView(size, {target, input});
                Floats to(count + 1, 9.0F);
                std::vector<std::int32_t> to_labels(labels.size() + 1, 9);
                std::vector<T> rounded(count + 1);
                BatchSpan taken(batch.columns());
                taken.set_data(first ? 0 : 1, reinterpret_cast<std::byte*>(to.data()));
                taken.set_data(first ? 1 : 0, reinterpret_cast<std::byte*>(to_labels.data()));
                const std::int32_t healthy = 1;
                impl::queue_take_batch(cuda, batch, taken, &healthy, rounded.data());
                cuda.synchronize();
                for (std::size_t i = 0; i < count; ++i) {
                    CHECK(to[i] == samples[start + i]);
                    CHECK(rounded[i].bits == T(samples[start + i]).bits);
                }
                CHECK(to[count] == 9.0F);
                CHECK(rounded[count].bits == 0);
                CHECK(to_labels[labels.size() - 1] == 3);
                CHECK(to_labels[labels.size()] == 9);
            }
        }
    }
}

TEST_CASE_TEMPLATE("parameters are rounded in the kernel that updates them", T, BFloat16, Float16) {
    CudaContext cuda(0, {});
    const std::vector<Segment> segments = segments_of(5, 16, 15);
    for (const bool averages : {true, false}) {
        CAPTURE(averages);
        Arenas a, apart;
        std::vector<T> rounded(arena + 8), expected(arena + 8);
        const std::int64_t before = emulator::kernels();
        const auto update = [&](Arenas& of) {
            update_parameters(Sgd{.learning_rate = 0.1, .momentum = 0.9}, update_of<Sgd>(cuda, of, segments));
            if (averages) MovingAverage{.decay = 0.9}.update<Cuda>(cuda, of.average.data(), of.w.data(), arena, 2);
        };
        const auto round = [&](const Arenas& of, std::vector<T>& to) {
            // A part of a segment, several segments, none.
            ops::Convert<Cuda>::run_joined(cuda, of.w.data() + 16, to.data() + 16, 7);
            ops::Convert<Cuda>::run_joined(cuda, of.w.data() + 48, to.data() + 48, 64);
            ops::Convert<Cuda>::run_joined(cuda, of.w.data() + 1024, to.data() + 1024, 33);
        };
        update(a);
        round(a, rounded);
        cuda.synchronize();
        CHECK(emulator::kernels() - before == 1);
        update(apart);
        cuda.synchronize();
        round(apart, expected);
        cuda.synchronize();
        CHECK(a == apart);
        CHECK(std::memcmp(rounded.data(), expected.data(), rounded.size() * sizeof(T)) == 0);
        CHECK(rounded[1024].bits == T(a.w[1024]).bits);
        // What is not of the arena is converted after the update.
        const Floats others = normal(10, 7);
        update(a);
        ops::Convert<Cuda>::run_joined(cuda, others.data(), rounded.data(), 10);
        cuda.synchronize();
        CHECK(rounded[9].bits == T(others[9]).bits);
    }
}

TEST_CASE_TEMPLATE("gradients are widened, slabs added and a loss that is not finite marked by one kernel", T, float,
                   BFloat16, Float16) {
    CudaContext cuda(0, {});
    for (const std::size_t start : {0, 1}) {
        for (const bool accumulate : {false, true}) {
            for (const int poisoned : {-1, 0, 1, 2}) {  // by no loss; in a widened part, in a sum, in neither
                CAPTURES(start, accumulate, poisoned);
                constexpr std::int64_t count = 1003, slabs = 45, channels = 19;
                const Floats values = normal(count + 1, 1), partial = normal(slabs * channels, 2);
                std::vector<T> from;
                for (const float value : values) from.push_back(static_cast<T>(value));
                Floats weights(count + 2, 0.5F), sums(channels + 1, 0.25F), other(3, 2.0F);
                double loss = 1;
                for (const bool finite : {true, false}) {
                    std::fill(weights.begin(), weights.end(), 0.5F);
                    std::fill(sums.begin(), sums.end(), 0.25F);
                    loss = finite ? 1 : std::numeric_limits<double>::infinity();
                    float* const marked = poisoned == 0   ? weights.data() + start
                                          : poisoned == 1 ? sums.data()
                                                          : other.data() + 1;
                    const std::int64_t before = emulator::kernels();
                    impl::queue_widened_gradient(cuda, from.data() + start, weights.data() + start, count, accumulate,
                                                 false);
                    impl::queue_slab_sums(cuda, partial.data(), slabs, channels, accumulate, sums.data(), false);
                    if (poisoned >= 0) ops::TrainingStep<Cuda>::poison(cuda, &loss, marked);
                    cuda.synchronize();
                    CHECK(emulator::kernels() - before == 1);
                    const bool marks = !finite && poisoned >= 0;
                    CHECK((marks && std::isnan(*marked)) == marks);
                    for (std::size_t i = start; i < start + count; ++i) {
                        const float expected = (accumulate ? 0.5F : 0.0F) + static_cast<float>(from[i]);
                        if (weights.data() + i != marked || !marks) REQUIRE(weights[i] == expected);
                    }
                    CHECK(weights[start + count] == 0.5F);
                    for (std::size_t c = 0; c < channels; ++c) {
                        double sum = accumulate ? 0.25 : 0.0;
                        for (std::size_t s = 0; s < slabs; ++s) sum += static_cast<double>(partial[s * channels + c]);
                        if (sums.data() + c != marked || !marks) CHECK(std::abs(sums[c] - sum) < 1e-5);
                    }
                    CHECK(sums[channels] == 0.25F);
                    CHECK(other[0] == 2.0F);
                    CHECK(other[2] == 2.0F);
                    other[1] = 2.0F;
                }
            }
        }
    }
}

TEST_CASE("deferred work waits for other work, and is launched in order with what it cannot be joined with") {
    CudaContext cuda(0, {});
    const Floats from(8, 2.0F);
    Floats to(40, 1.0F), other(8, 1.0F);
    const auto defer = [&](std::size_t k, bool lasts) {
        impl::queue_widened_gradient(cuda, from.data(), to.data() + k, 1, true, lasts);
    };
    const float by = 1;
    const auto scale = [&] { ops::TrainingStep<Cuda>::scale(cuda, other, 2, &by); };
    const auto kernels = [&](auto&& work) {
        const std::int64_t before = emulator::kernels();
        work();
        CHECK(cudaStreamSynchronize(cuda.stream()) == cudaSuccess);
        return emulator::kernels() - before;
    };
    {
        const CudaContext::DeferScope scope(cuda);
        CHECK(kernels([&] { defer(0, true); }) == 0);
        CHECK(kernels([&] {
                  defer(1, false);  // whose operands do not last
                  scale();
              }) == 2);
        CHECK(to[0] == 1);
        CHECK(to[1] == 3);
        CHECK(kernels([&] { cuda.launch_deferred(); }) == 1);
        CHECK(to[0] == 3);
        CHECK(kernels([&] { cuda.launch_deferred(); }) == 0);
        // One kernel has 32 pieces.
        CHECK(kernels([&] {
                  for (std::size_t k = 0; k < 33; ++k) defer(k, true);
              }) == 1);
        CHECK(to[31] == 3);
        CHECK(to[32] == 1);
        CHECK(kernels([&] { cuda.launch_deferred(); }) == 1);
        CHECK(to[32] == 3);
        // Two that add to the same elements are two kernels.
        CHECK(kernels([&] {
                  defer(33, true);
                  defer(33, true);
                  cuda.launch_deferred();
              }) == 2);
        CHECK(to[33] == 5);
        defer(39, true);
    }
    // What was left is discarded, as after an exception, and nothing is deferred any more.
    CHECK(kernels([&] { scale(); }) == 1);
    CHECK(to[39] == 1);
    CHECK(kernels([&] {
              defer(39, true);
              scale();
          }) == 2);
    CHECK(to[39] == 3);
}

namespace {

/// Convolutions whose gradients are widened, two that share their weights, and a classifier that masks and sums for what is before it.
struct Deferring
    : InPrecision<MixedBFloat16, Sequential<Input<6, 6, 8>, Named<"first", Conv2d<8, 3>>, ReLU, MaxPool2d<2, 2>,
                                            Tied<"same", Conv2d<8, 3>>, ReLU, Tied<"same", Conv2d<8, 3>>, Flatten,
                                            Named<"hidden", Linear<40>>, ReLU, Linear<5>>> {};
/// The upper one of two that share their parameters has sums for its bias from the layer above, which are deferred, and the lower one adds
/// its own to them.
struct DeferringTied : InPrecision<MixedBFloat16, Sequential<Input<1, 1, 24>, Flatten, Tied<"same", Linear<24>>, ReLU,
                                                             Tied<"same", Linear<24>>, ReLU, Linear<5>>> {};
/// With weights whose gradients are computed and discarded.
struct DeferringFrozen : Frozen<Deferring, "first.weight", "hidden.weight"> {};

/// The gradient of a pass, and the kernels of its own that it launches.
template <class Net>
std::pair<Floats, std::int64_t> gradient_of(bool defers, bool accumulate, std::int64_t batch, bool chains) {
    CudaOptions options = device_options<Cuda>(1);
    options.linear_chains = chains;
    CudaContext cuda(0, options);
    const impl::OnCudaDevice team = cuda.team();
    auto plan = PlanOf<Net, Cuda>::template make<Net>(cuda, {.batch = batch});
    CudaArena memory(plan.bytes().total(), "the plan");
    plan.bind(memory.data());
    // Libraries take memory of the device alone.
    std::deque<CudaArena> arrays;
    const auto on_device = [&](const Floats& values) {
        const std::size_t bytes = values.size() * sizeof(float);
        std::byte* const to = arrays.emplace_back(bytes, "an array").data();
        Cuda::copy_from_host(cuda, to, reinterpret_cast<const std::byte*>(values.data()), bytes);
        return reinterpret_cast<float*>(to);
    };
    Floats gradient(static_cast<std::size_t>(Net::parameter_elements), 0.5F);
    const float* const input = on_device(normal(batch * Net::input.size(), 1));
    const float* const output = on_device(normal(batch * Net::output.size(), 2));
    const float* const parameters = on_device(normal(Net::parameter_elements, 3));
    float* const gradients = on_device(gradient);
    plan.prepare(cuda, parameters);
    plan.forward(cuda, input, parameters, {});
    cuda.queue_copy(plan.output_gradient(), output,
                    static_cast<std::size_t>(batch * Net::output.size()) * sizeof(float));
    cuda.synchronize();
    const std::int64_t before = emulator::kernels();
    const auto backward = [&] { plan.backward(cuda, input, parameters, gradients, {}, accumulate); };
    if (defers) {
        const CudaContext::DeferScope scope(cuda);
        backward();
        cuda.launch_deferred();
    } else {
        backward();
    }
    cuda.synchronize();
    const std::int64_t kernels = emulator::kernels() - before;
    Cuda::copy_to_host(cuda, reinterpret_cast<std::byte*>(gradient.data()),
                       reinterpret_cast<const std::byte*>(gradients), gradient.size() * sizeof(float));
    return {gradient, kernels};
}

template <class Net>
void expect_same_gradient(bool fewer) {
    for (const std::int64_t batch : {1, 3, 130}) {
        for (const bool accumulate : {false, true}) {
            CAPTURES(batch, accumulate);
            const auto [deferred, few] = gradient_of<Net>(true, accumulate, batch, false);
            const auto [apart, many] = gradient_of<Net>(false, accumulate, batch, false);
            CHECK(same_bits(deferred, apart));
            CHECK((few < many) == fewer);
            // A chain of linear layers joins the sums of all of them either way.
            CHECK(same_bits(gradient_of<Net>(true, accumulate, batch, true).first,
                            gradient_of<Net>(false, accumulate, batch, true).first));
        }
    }
}

}  // namespace

TEST_CASE("a backward pass whose last pieces are deferred has the bits of one that launches each with its layer") {
    expect_same_gradient<Deferring>(true);
    expect_same_gradient<DeferringTied>(true);
    // Each layer's are launched before the next uses the memory in which some are discarded.
    expect_same_gradient<DeferringFrozen>(false);
}

TEST_CASE_TEMPLATE("sums for biases are one kernel, except two that add to the same bias", T, float, BFloat16) {
    CudaContext cuda(0, {});
    constexpr std::int64_t rows = 9, columns = 11;
    const Floats outputs = normal(rows * columns, 1), gradients = normal(rows * columns, 2);
    std::vector<T> y, g;
    for (const float value : outputs) y.push_back(static_cast<T>(value));
    for (const float value : gradients) g.push_back(static_cast<T>(value));
    std::vector<T> masked = g;
    Floats plain(columns, 1.0F), of_masked(columns, 1.0F);
    std::int64_t before = emulator::kernels();
    impl::queue_bias_gradient<T>(cuda, nullptr, g.data(), plain.data(), rows, columns, false);
    impl::queue_bias_gradient<T>(cuda, y.data(), masked.data(), of_masked.data(), rows, columns, true);
    cuda.synchronize();
    CHECK(emulator::kernels() - before == 1);
    for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0, sum_of_masked = 1;
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t at = r * columns + c;
            sum += static_cast<double>(static_cast<float>(g[at]));
            const bool positive = static_cast<float>(y[at]) > 0.0F;
            if (positive) sum_of_masked += static_cast<double>(static_cast<float>(g[at]));
            CHECK(static_cast<float>(masked[at]) == (positive ? static_cast<float>(g[at]) : 0.0F));
        }
        CHECK(std::abs(plain[c] - sum) < 1e-5);
        CHECK(std::abs(of_masked[c] - sum_of_masked) < 1e-5);
    }
    before = emulator::kernels();
    const Floats once = plain;
    impl::queue_bias_gradient<T>(cuda, nullptr, g.data(), plain.data(), rows, columns, true);
    impl::queue_bias_gradient<T>(cuda, nullptr, g.data(), plain.data(), rows, columns, true);
    cuda.synchronize();
    CHECK(emulator::kernels() - before == 2);
    for (std::size_t c = 0; c < columns; ++c) CHECK(plain[c] == doctest::Approx(3 * once[c]).epsilon(1e-6));
}

TEST_CASE_TEMPLATE(
    "a backward pass that sums the gradient it writes has the same gradient, and the sums of what is stored", T, float,
    BFloat16, Float16) {
    CudaContext cuda(0, {});
    const std::int64_t batch = 3;
    for (const std::int64_t channels : {1, 8, 64, 256}) {
        for (const std::int64_t size : {4, 13}) {
            CAPTURES(channels, size);
            REQUIRE(impl::sums_channels(channels));
            const PoolingShape shape{window_axis(size, 3, 2, Padding::same), window_axis(size, 3, 2, Padding::same),
                                     channels};
            const std::int64_t inputs = batch * size * size * channels,
                               outputs = batch * shape.height.output * shape.width.output * channels;
            std::vector<T> x, dy, y(static_cast<std::size_t>(outputs)), dx(static_cast<std::size_t>(inputs)),
                plain = dx;
            for (const float value : normal(inputs, 1)) x.push_back(static_cast<T>(value));
            for (const float value : normal(outputs, 2)) dy.push_back(static_cast<T>(value));
            std::vector<std::uint8_t> offsets(static_cast<std::size_t>(outputs));
            const auto expect_sums = [&](const Floats& partial, std::int64_t parts) {
                for (std::int64_t c = 0; c < channels; ++c) {
                    double sum = 0, expected = 0, size_of = 0;
                    for (std::int64_t p = 0; p < parts; ++p)
                        sum += static_cast<double>(partial[static_cast<std::size_t>(p * channels + c)]);
                    for (std::int64_t i = c; i < inputs; i += channels) {
                        const auto value = static_cast<double>(static_cast<float>(dx[static_cast<std::size_t>(i)]));
                        expected += value;
                        size_of += std::abs(value);
                    }
                    CHECK(std::abs(sum - expected) <= 1e-6 * size_of);
                }
            };
            const std::int64_t parts = impl::gradient_sum_parts(inputs);
            Floats partial(static_cast<std::size_t>(parts * channels), 9.0F);
            const ChannelSums sums{partial.data(), parts};
            impl::max_pool_forward(cuda, shape, batch, x.data(), y.data(), offsets.data(), true);
            impl::max_pool_backward(cuda, shape, batch, dy.data(), offsets.data(), plain.data(), {});
            impl::max_pool_backward(cuda, shape, batch, dy.data(), offsets.data(), dx.data(), sums);
            cuda.synchronize();
            CHECK(std::memcmp(dx.data(), plain.data(), dx.size() * sizeof(T)) == 0);
            expect_sums(partial, parts);

            // The other operation of a convolution's mask, for channels that it processes in chunks.
            const LocalResponseNormShape norm{channels, 4, 1, 0.1F, 0.75F};
            if (!impl::norm_in_chunks(norm)) continue;
            const impl::PoolExtents extents(shape, impl::norm_chunk);
            const impl::LrnThenPoolBackward<T, 4> backward{
                extents, impl::NormFormula(norm), x.data(), dy.data(), offsets.data(), dx.data(), true};
            impl::launch(cuda, extents.inputs(batch), backward);
            cuda.synchronize();
            plain = dx;
            std::fill(partial.begin(), partial.end(), 9.0F);
            impl::launch_summed<impl::norm_chunk>(cuda, extents.inputs(batch), channels, sums, backward);
            cuda.synchronize();
            CHECK(std::memcmp(dx.data(), plain.data(), dx.size() * sizeof(T)) == 0);
            expect_sums(partial, parts);
        }
    }
}

namespace {

/// What a step queues at its end, and the arrays that it changes.
struct EndOfStep {
    /// The elements by which all arrays begin beside a multiple of 16 bytes.
    std::int64_t start = 0;
    int regularized = 2;
    bool gradients = true, averages = true, rounds = true, finite = true;
    std::int64_t elements = arena;
};

struct AtEnd {
    Floats w, row, average, state;
    std::vector<BFloat16> rounded;
    std::vector<double> squares;
    std::int32_t healthy = 1;
    std::vector<impl::PinnedUnit> landed;
    std::int64_t kernels = 0, cooperative = 0;

    bool operator==(const AtEnd& other) const {
        return same_bits(w, other.w) && same_bits(row, other.row) && same_bits(average, other.average) &&
               same_bits(state, other.state) && squares == other.squares && healthy == other.healthy &&
               std::memcmp(rounded.data(), other.rounded.data(), rounded.size() * sizeof(BFloat16)) == 0 &&
               std::memcmp(landed.data(), other.landed.data(), landed.size() * sizeof(impl::PinnedUnit)) == 0;
    }
};

/// Twice, with counters that are 0 again in the second. `apart`: each piece is launched before the next is queued.
template <class O>
AtEnd end_of_step(CudaContext& cuda, const O& optimizer, const EndOfStep& what, bool apart = false) {
    const std::int64_t count = what.elements, widened = count / 2 / 4 * 4, slabs = 5, channels = count - widened;
    const auto size = static_cast<std::size_t>(count + what.start);
    AtEnd result{.w = normal(count + what.start, 1),
                 .row = Floats(size, 0.25F),
                 .average = normal(count + what.start, 4),
                 .state = Floats(3 * size + 16, 0.1F),
                 .rounded = std::vector<BFloat16>(size),
                 .squares = std::vector<double>(20),
                 .landed = std::vector<impl::PinnedUnit>(2)};
    const auto begin = static_cast<std::size_t>(what.start);
    float *const w = result.w.data() + begin, *const row = result.row.data() + begin;
    std::vector<BFloat16> narrow;
    for (const float value : normal(widened, 5)) narrow.push_back(static_cast<BFloat16>(value));
    const Floats partial = normal(slabs * channels, 6);
    const double loss = what.finite ? 1.0 : std::numeric_limits<double>::quiet_NaN();
    const float divisor = 3;
    const std::vector<impl::PinnedUnit> status{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}};
    impl::PinnedUnit* const place = result.landed.data();
    const std::vector<Segment> segments{{.offset = 0, .size = widened, .l2 = 0.01, .rank = 4},
                                        {.offset = widened, .size = channels, .rank = 1}};
    cuda.set_step_scalars({.healthy = &result.healthy});
    const auto piece = [&] {
        if (apart) cuda.launch_joined();
    };
    const std::int64_t before = emulator::kernels(), cooperative = emulator::cooperative_kernels();
    for (int turn = 0; turn < 2; ++turn) {
        if (what.gradients) {
            impl::queue_widened_gradient(cuda, narrow.data(), row, widened, true, false);
            impl::queue_slab_sums(cuda, partial.data(), slabs, channels, false, row + widened, false);
            ops::TrainingStep<Cuda>::poison(cuda, &loss, row + 7);
            piece();
        }
        ops::TrainingStep<Cuda>::mean(cuda, {row, static_cast<std::size_t>(count)}, &divisor,
                                      {row, static_cast<std::size_t>(count)}, &result.healthy);
        for (int k = 0; k < what.regularized; ++k)
            ops::TrainingStep<Cuda>::sum_of_squares(cuda,
                                                    {w + 3 * k, static_cast<std::size_t>((count - 3 * k) / (k + 1))},
                                                    &result.squares[static_cast<std::size_t>(k)]);
        piece();
        const Update<Cuda> update{.context = cuda,
                                  .parameters = w,
                                  .gradient = row,
                                  .state = result.state.data() + begin,
                                  .elements = count / 4 * 4 + 4,
                                  .segments = segments,
                                  .step = 3 + turn};
        update_parameters(optimizer, update);
        piece();
        if (what.averages) MovingAverage{.decay = 0.9}.update<Cuda>(cuda, result.average.data() + begin, w, count, 2);
        piece();
        if (what.rounds) ops::Convert<Cuda>::run_joined(cuda, w, result.rounded.data() + begin, widened);
        if (auto* const updates = cuda.joined_as<impl::JoinedUpdatesBase>(); updates != nullptr && !apart) {
            updates->add_copy({.from = status.data(), .place = &place, .units = 2});
        } else {
            impl::queue_copy_to_pinned(cuda, status.data(), place, 2 * sizeof(impl::PinnedUnit));
        }
        cuda.synchronize();
    }
    result.kernels = emulator::kernels() - before;
    result.cooperative = emulator::cooperative_kernels() - cooperative;
    cuda.set_step_scalars({});
    return result;
}

/// `together`: the launches of both turns where the GPU launches cooperative grids.
template <class O>
void expect_one_kernel(const O& optimizer, const EndOfStep& what, std::int64_t together = 2) {
    CudaContext cuda(0, {}), without(0, {.cooperative_launch = false});
    const AtEnd joined = end_of_step(cuda, optimizer, what), parts = end_of_step(without, optimizer, what),
                apart = end_of_step(without, optimizer, what, true);
    CHECK(joined.kernels == together);
    CHECK(joined.cooperative == 2);
    CHECK(parts.kernels > together);
    CHECK(parts.cooperative == 0);
    CHECK(joined == parts);
    CHECK(joined == apart);
    CHECK(joined.healthy == (what.finite ? 1 : 0));
    CHECK(same_bits(joined.w, normal(what.elements + what.start, 1)) == !what.finite);
    CHECK(joined.landed[1].word[3] == 8);
}

}  // namespace

TEST_CASE("the end of a step is one kernel with the bits of a kernel for each of its parts") {
    const Sgd plain{.learning_rate = 0.1};
    for (const bool averages : {true, false}) {
        for (const bool rounds : {true, false}) {
            CAPTURES(averages, rounds);
            expect_one_kernel(plain, {.averages = averages, .rounds = rounds});
            expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 0.5, .max_value = 0.1},
                              {.averages = averages, .rounds = rounds});
        }
    }
    for (const int regularized : {0, 1, 16}) expect_one_kernel(plain, {.regularized = regularized});
    expect_one_kernel(plain, {.gradients = false});
    expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 1e9}, {.regularized = 16, .gradients = false});
    // One block, and more elements than the blocks that run at a time have threads.
    expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 0.5}, {.elements = 24});
    expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 0.5}, {.elements = 24'000});
    // A loss that is not finite: nothing changes.
    expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 0.5}, {.rounds = false, .finite = false});
    // Beside a multiple of 16 bytes, where averages and rounded copies are kernels of their own, as is the copy behind them.
    expect_one_kernel(Clipped<Sgd>{.optimizer = plain, .max_norm = 0.5},
                      {.start = 1, .averages = false, .rounds = false});
    expect_one_kernel(plain, {.start = 1, .averages = true, .rounds = false}, 4);
}

TYPED_TEST_CASE("the end of a step is one kernel for each optimiser but those that measure tensors", O, EachOptimizer) {
    if constexpr (!std::is_same_v<O, Lamb> && !std::is_same_v<O, Lars>) {
        O optimizer{.learning_rate = 0.1};
        if constexpr (requires { optimizer.momentum; }) optimizer.momentum = 0.9;
        expect_one_kernel(optimizer, {});
        expect_one_kernel(Clipped<O>{.optimizer = optimizer, .max_norm = 0.5}, {});
    }
}

TEST_CASE("a gradient that is clipped twice has the bits of kernels apart") {
    const Clipped<Sgd> once{.optimizer = {.learning_rate = 0.1}, .max_norm = 0.5};
    // The first norm is a kernel for each of its sums; the second is in the kernel of the update.
    expect_one_kernel(Clipped<Clipped<Sgd>>{.optimizer = once, .max_norm = 0.7}, {}, 2 * (1 + 1 + 2 * 2 + 1 + 1));
}
