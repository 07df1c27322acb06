// SPDX-License-Identifier: Apache-2.0
//
// Compares the results of `Cuda`'s kernels on the emulator with those of `Host`: the operations that no typed test covers,
// the optimisers, the sums, and the division by which threads find their elements.
#include "../test.hpp"

#include <random>

#include <cupola/cuda.hpp>
#include <cupola/host.hpp>
#include <cupola/ops/host/option_a_shortcut.hpp>
#include <cupola/ops/weighted_targets.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/optimizers.hpp>

#include "../reference/compare.hpp"
#include "../reference/pooling.hpp"
#include "emulator/control.hpp"
#include "emulator/listener.hpp"

using reference::distance, reference::Floats, reference::same_bits;

namespace {

template <class T>
std::vector<T> elements(const Floats& values) {
    std::vector<T> result;
    for (const float value : values) result.push_back(static_cast<T>(value));
    return result;
}
template <class T>
Floats widened(const std::vector<T>& values) {
    return {values.begin(), values.end()};
}

/// The type in which `D` computes for T: Host has no Float16, so it computes in float and rounds the result once.
template <class D, class T>
using ComputedIn = std::conditional_t<std::is_same_v<D, Host> && std::is_same_v<T, Float16>, float, T>;

Floats normal(std::int64_t count, std::uint64_t seed) { return reference::Random(seed).normal(count); }

/// Restores the emulated devices.
struct Restored {
    ~Restored() {
        emulator::set_multiprocessors(2);
        emulator::run_side_by_side_in(8);
        emulator::set_seed(1);
    }
};

/// A batch of the cross-entropy. The labels 3 are ignored where the loss can.
template <class Targets>
struct LossCase {
    static constexpr std::int64_t classes = 10;

    explicit LossCase(std::int64_t count) : rows(count), logits(normal(count * classes, 1)) {
        for (std::int64_t n = 0; n < rows; ++n) {
            labels.push_back(static_cast<std::int32_t>(n * 7 % 10));
            for (std::int64_t c = 0; c < classes; ++c) soft.push_back(c == n % 10 ? 0.75F : 0.25F / 9);
        }
    }
    [[nodiscard]] auto targets() const {
        if constexpr (std::is_same_v<Targets, impl::LabelTargets>) {
            return Targets(settings, labels.data());
        } else {
            using With = typename Targets::template With<impl::WeightArray<impl::few_weights>>;
            const auto array = impl::weight_array<impl::few_weights>(weights);
            if constexpr (Targets::sums_targets) {
                return With(settings, soft.data(), array);
            } else {
                return With(settings, labels.data(), array);
            }
        }
    }

    Floats weights{1, 2, 1, 0.5F, 1, 3, 1, 1, 1, 2};
    std::int64_t rows;
    Floats logits, soft{};
    std::vector<std::int32_t> labels{};
    ops::CrossEntropySettings settings{
        .classes = classes, .label_smoothing = 0.1F, .positions = 2, .class_weights = weights, .ignored_label = 3};
};
bool equal_reports(const LossReport& a, const LossReport& b) {
    return __builtin_bit_cast(std::uint64_t, a.sum) == __builtin_bit_cast(std::uint64_t, b.sum) &&
           a.correct == b.correct && a.weight == b.weight && a.predictions == b.predictions &&
           a.bad_target == b.bad_target && a.bad_value == b.bad_value;
}

void finish(HostContext&) {}
/// Runs the queued work.
void finish(CudaContext& context) { context.synchronize(); }

/// Copies two floats at once.
struct CopyOfTwo {
    const float* from;
    float* to;

    void operator()(std::int64_t i) const {
        float both[2];
        impl::load_floats<2>(from + 2 * i, both);
        impl::store_floats<2>(to + 2 * i, both);
    }
};

/// Keeps the number of blocks; a kernel of its own for each `kind`.
template <int kind>
struct KeepGrid {
    int* blocks;
    int* calls;
    void operator()(std::int64_t) const {
        *blocks = static_cast<int>(gridDim.x);
        ++*calls;
    }
};

/// Each thread adds the values that the threads of its number in all blocks have written before a barrier of the grid.
template <int rounds>
void add_over_blocks(int* values, int* sums, unsigned* counter) {
    impl::begin_kernel();
    const int mine = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    for (int round = 0; round < rounds; ++round) {
        values[mine] = mine + round;
        impl::grid_barrier(counter);
        int sum = 0;
        for (unsigned block = 0; block < gridDim.x; ++block) sum += values[block * blockDim.x + threadIdx.x];
        sums[round * static_cast<int>(gridDim.x * blockDim.x) + mine] = sum;
        impl::grid_barrier(counter);
    }
}

/// Offsets at which an array begins: a multiple of 16 bytes, and one element behind it.
constexpr std::size_t starts[] = {0, 1};

}  // namespace

TEST_CASE("a kernel's division is exact for every number") {
    std::mt19937_64 random(5);
    const std::int64_t half = 1 << 30, most = 2 * half - 1;
    std::vector<std::int64_t> divisors{1, 2, 3, 5, 7, 8, 9, 10, 24, 63, 64, 65, 255, 641, 1000, 65535, 65536, 65537};
    divisors.insert(divisors.end(), {half - 1, half, half + 1, most - 1, most});
    for (int k = 0; k < 300; ++k) divisors.push_back(static_cast<std::int64_t>(random() % 100'000 + 1));
    for (const std::int64_t d : divisors) {
        const impl::Divisor by(d);
        std::vector<std::int64_t> numbers{0,        1,    d - 1,    d,        d + 1,
                                          most - 1, most, most + 1, most + 2, std::int64_t{1} << 40};
        for (int k = 0; k < 200; ++k) {
            const auto n = static_cast<std::int64_t>(random() >> (24 + random() % 30));
            numbers.push_back(n);
            if (n >= d) numbers.push_back(n / d * d - 1);
            numbers.push_back(n / d * d);
        }
        bool exact = true;
        for (const std::int64_t n : numbers) {
            const auto [quotient, remainder] = by.divide(n);
            exact = exact && quotient == n / d && remainder == n % d;
            if (n <= most) exact = exact && by.quotient(static_cast<int>(n)) == n / d;
        }
        CHECK_MESSAGE(exact, "by ", d);
    }
}

TEST_CASE("a grid has as many blocks as the GPU holds of the kernel at a time, and fewer for few elements") {
    CudaContext cuda(0, {});
    emulator::set_resident_blocks(3);
    const auto blocks_of = [&]<int kind>(std::integral_constant<int, kind>, std::int64_t count) {
        int blocks = 0, calls = 0;
        impl::launch(cuda, count, KeepGrid<kind>{&blocks, &calls});
        finish(cuda);
        CHECK(calls == count);
        return blocks;
    };
    const std::integral_constant<int, 3> three;
    CHECK(blocks_of(three, 1) == 1);
    CHECK(blocks_of(three, 257) == 2);
    CHECK(blocks_of(three, 100'000) == 3 * cuda.multiprocessors());
    emulator::set_resident_blocks(0);
    CHECK(blocks_of(std::integral_constant<int, 8>{}, 100'000) == 8 * cuda.multiprocessors());
    CHECK(blocks_of(three, 100'000) == 3 * cuda.multiprocessors());
}

TEST_CASE("a kernel that uses several elements at once at an address that is no multiple of them fails") {
    alignas(8) const float from[5] = {1, 2, 3, 4, 5};
    alignas(8) float to[5] = {};
    for (const int of_from : {0, 1}) {
        for (const int of_to : {0, 1}) {
            emulator::mend();
            CudaContext cuda(0, {});
            impl::launch(cuda, 2, CopyOfTwo{from + of_from, to + of_to});
            if (of_from + of_to == 0) {
                cuda.synchronize();
                CHECK(to[3] == 4);
                continue;
            }
            CHECK_THROWS_AS(cuda.synchronize(), DeviceError);
            CHECK(emulator::failure().find("a kernel uses 8 bytes at once at the address ") != std::string::npos);
        }
    }
    emulator::mend();
}

TEST_CASE_TEMPLATE("Add and Fork compute Host's bits, aligned or not", T, float, BFloat16, Float16) {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    for (const std::int64_t count : {1, 7, 8, 9, 1003}) {
        for (const std::size_t start : starts) {
            const std::size_t all = start + static_cast<std::size_t>(count);
            const auto rounded = [&](std::uint64_t seed) {
                return widened(elements<T>(normal(static_cast<std::int64_t>(all), seed)));
            };
            Floats first = rounded(1);
            first[start] = std::numeric_limits<float>::quiet_NaN();
            const Floats second = rounded(2), gradient = rounded(3);
            const Shape shape{1, 1, count};
            for (const Activation activation : {Activation::none, Activation::relu}) {
                for (const bool by_next : {false, true}) {
                    for (const bool in_place : {false, true}) {
                        CAPTURES(count, start);
                        const auto results = [&]<class D>(typename D::Context& context) {
                            using C = ComputedIn<D, T>;
                            const auto a = elements<C>(first), b = elements<C>(second);
                            ops::Add<D, C> add(BuildContext<D, C>{.context = context,
                                                                  .batch = 1,
                                                                  .input = shape,
                                                                  .output = shape,
                                                                  .activation = activation,
                                                                  .relu_mask_applied_by_next = by_next});
                            std::vector<C> y(all), dy = elements<C>(gradient), da(all), db(all), sum(all);
                            BackwardArgs<D, C> pass{{.context = context,
                                                     .input = a.data() + start,
                                                     .output = y.data() + start,
                                                     .second_input = b.data() + start}};
                            add.forward(pass);
                            pass.output_gradient = dy.data() + start;
                            pass.input_gradient = da.data() + start;
                            pass.second_input_gradient = in_place ? dy.data() + start : db.data() + start;
                            add.backward(pass);
                            ops::Fork<D, C> fork(
                                BuildContext<D, C>{.context = context, .batch = 1, .input = shape, .output = shape});
                            BackwardArgs<D, C> forked{{.context = context}};
                            forked.output_gradient = da.data() + start;
                            forked.input_gradient = sum.data() + start;
                            forked.second_output_gradient = b.data() + start;
                            fork.backward(forked);
                            finish(context);
                            Floats result;
                            for (const auto* part : {&y, &dy, &da, &db, &sum}) {
                                for (const C value : *part)
                                    result.push_back(impl::as_stored<T>(static_cast<float>(value)));
                            }
                            return result;
                        };
                        CHECK(same_bits(results.template operator()<Cuda>(cuda),
                                        results.template operator()<Host>(host)));
                    }
                }
            }
        }
    }
}

TEST_CASE_TEMPLATE("the padded shortcut computes what Host does", T, float, BFloat16, Float16) {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    struct Case {
        std::int64_t height, width, in, out, before, stride;
    };
    for (const Case& c : {Case{8, 8, 16, 32, 8, 2}, Case{7, 5, 16, 32, 8, 2}, Case{5, 5, 3, 8, 2, 2},
                          Case{6, 6, 8, 24, 4, 3}, Case{4, 4, 8, 16, 8, 1}}) {
        const OptionAShortcutShape shape{window_axis(c.height, c.stride, c.stride, Padding::same),
                                         window_axis(c.width, c.stride, c.stride, Padding::same), c.in, c.out,
                                         c.before};
        const Shape input{c.height, c.width, c.in}, output{shape.height.output, shape.width.output, c.out};
        const std::int64_t batch = 3;
        const Floats values = widened(elements<T>(normal(batch * input.size(), 4))),
                     gradient = widened(elements<T>(normal(batch * output.size(), 5)));
        const auto results = [&]<class D>(typename D::Context& context) {
            using C = ComputedIn<D, T>;
            const auto x = elements<C>(values);
            ops::OptionAShortcut<D, C> op(
                BuildContext<D, C>{.context = context, .batch = batch, .input = input, .output = output}, shape);
            std::vector<C> y(gradient.size(), C(9.0F)), dy = elements<C>(gradient), dx(x.size(), C(9.0F));
            BackwardArgs<D, C> pass{{.context = context, .input = x.data(), .output = y.data()}};
            pass.output_gradient = dy.data();
            pass.input_gradient = dx.data();
            op.forward(pass);
            op.backward(pass);
            finish(context);
            return std::pair(widened(elements<T>(widened(y))), widened(elements<T>(widened(dx))));
        };
        const auto [y, dx] = results.template operator()<Cuda>(cuda);
        const auto [expected, expected_gradient] = results.template operator()<Host>(host);
        CHECK(same_bits(y, expected));
        CHECK(same_bits(dx, expected_gradient));
    }
}

TEST_CASE_TEMPLATE("a maximum over windows of more than 15 elements keeps its position", T, float, BFloat16, Float16) {
    CudaContext cuda(0, {});
    for (const std::int64_t channels : {8, 3}) {
        for (const bool mask : {false, true}) {
            const reference::Pooling r{2, reference::same(20, 17, 2), reference::same(19, 16, 3), channels, true};
            const PoolingShape shape{window_axis(20, 17, 2, Padding::same), window_axis(19, 16, 3, Padding::same),
                                     channels, PoolingKind::max};
            const Shape input{20, 19, channels}, output{shape.height.output, shape.width.output, channels};
            Floats values = normal(r.input_size(), 6);
            for (float& value : values) value = std::round(value) - (mask ? 2.5F : 0.0F);  // makes many equal
            const auto x = elements<T>(values);
            auto dy = elements<T>(normal(r.output_size(), 7));
            ops::Pooling<Cuda, T> op(BuildContext<Cuda, T>{.context = cuda,
                                                           .batch = 2,
                                                           .input = input,
                                                           .output = output,
                                                           .applies_relu_mask_of_previous = mask},
                                     shape);
            std::vector<T> y(dy.size()), dx(x.size());
            std::vector<std::int32_t> saved(op.needs().saved / 4);
            BackwardArgs<Cuda, T> pass{{.context = cuda,
                                        .input = x.data(),
                                        .output = y.data(),
                                        .saved = reinterpret_cast<std::byte*>(saved.data())}};
            pass.output_gradient = dy.data();
            pass.input_gradient = dx.data();
            op.forward(pass);
            op.backward(pass);
            finish(cuda);
            CHECK(distance(widened(y), r.forward(widened(x))) == 0);
            Floats kept = widened(dy);
            for (std::size_t i = 0; i < kept.size(); ++i) {
                if (mask && !(static_cast<float>(y[i]) > 0)) kept[i] = 0;
            }
            CHECK(distance(widened(dx), r.input_gradient(kept, widened(x))) < (std::is_same_v<T, float>     ? 1e-6
                                                                               : std::is_same_v<T, Float16> ? 1e-3
                                                                                                            : 4e-3));
        }
    }
}

namespace {

/// The parameters and the state after one step of an optimiser on a device.
template <class D, class O>
Floats stepped(typename D::Context& context, const O& optimizer, const Floats& gradient, Floats w, Floats state,
               const Segment& segment, float clip = 0, float scale = 1) {
    const auto elements = static_cast<std::int64_t>(w.size());
    update_parameters(optimizer, Update<D>{.context = context,
                                           .parameters = w.data(),
                                           .gradient = gradient.data(),
                                           .state = state.data(),
                                           .elements = elements,
                                           .segments = {&segment, 1},
                                           .step = 2,
                                           .scale = scale,
                                           .clip = clip});
    if constexpr (std::is_same_v<D, Cuda>) finish(context);
    w.insert(w.end(), state.begin(), state.end());
    return w;
}

}  // namespace

TEST_CASE("each optimiser's formula agrees with Host's, and writes nothing beside its parameters") {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    const auto agree = [&](const char* name, const auto& optimizer) {
        for (const std::int64_t count : {1, 3, 4, 1001, 4100}) {
            for (const std::size_t start : starts) {
                for (const std::size_t rank : {1, 2}) {
                    for (const bool plain : {true, false}) {
                        const auto first = static_cast<std::int64_t>(start), all = first + count + 3;
                        Floats state = normal(2 * all, 8);
                        for (float& value : state) value *= value;
                        const Floats w = normal(all, 10), gradient = normal(all, 11);
                        const Segment segment{first, count, plain ? 0.0 : 0.01, rank};
                        const float clip = plain ? 0 : 0.9F, scale = plain ? 1 : 0.7F;
                        const Floats ours = stepped<Cuda>(cuda, optimizer, gradient, w, state, segment, clip, scale);
                        CHECK_MESSAGE(distance(ours, stepped<Host>(host, optimizer, gradient, w, state, segment, clip,
                                                                   scale)) < 1e-6,
                                      name, " of ", count, " from ", start);
                        Floats before = w;
                        before.insert(before.end(), state.begin(), state.end());
                        for (std::size_t i = 0; i < ours.size(); ++i) {
                            const auto place = static_cast<std::int64_t>(i) % all;
                            if (place < first || place >= first + count) CHECK(ours[i] == before[i]);
                        }
                    }
                }
            }
        }
    };
    agree("sgd", Sgd{.learning_rate = 0.1});
    agree("sgd, decoupled", Sgd{.learning_rate = 0.1, .weight_decay = 0.01, .decoupled = true});
    agree("momentum", Sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .decoupled = true});
    agree("nesterov", Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.03});
    agree("adam", Adam{.learning_rate = 0.01, .weight_decay = 0.03});
    agree("adamw", AdamW{.learning_rate = 0.01, .weight_decay = 0.02});
    agree("rms_prop", RmsProp{.learning_rate = 0.1, .epsilon = 0.01, .weight_decay = 0.03});
    agree("rms_prop with momentum", RmsProp{.learning_rate = 0.1, .momentum = 0.9, .epsilon = 0.01});
    for (const bool adapt : {false, true}) {
        agree("lamb", Lamb{.learning_rate = 0.1, .weight_decay = 0.02, .adapt_biases = adapt});
        agree("lars", Lars{.learning_rate = 0.1, .weight_decay = 0.02, .adapt_biases = adapt});
    }
    Floats average = normal(1001, 1), expected = average;
    const Floats w = normal(1001, 2);
    MovingAverage{.decay = 0.75}.update<Cuda>(cuda, average.data(), w.data(), 1001, 100);
    finish(cuda);
    MovingAverage{.decay = 0.75}.update<Host>(host, expected.data(), w.data(), 1001, 100);
    CHECK(distance(average, expected) < 1e-6);
}

TEST_CASE("a parameter of zeros, or a gradient of zeros, has a trust ratio of 1") {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    const auto check = [&](const auto& optimizer) {
        for (const bool zero_w : {false, true}) {
            const Floats g = zero_w ? normal(10, 1) : Floats(10), w = zero_w ? Floats(10) : normal(10, 2), state(20);
            const Segment segment{0, 10, 0.0, 2};
            const Floats ours = stepped<Cuda>(cuda, optimizer, g, w, state, segment);
            for (const float value : ours) CHECK(std::isfinite(value));
            CHECK(distance(ours, stepped<Host>(host, optimizer, g, w, state, segment)) < 1e-6);
        }
    };
    check(Lars{.learning_rate = 0.1});
    check(Lamb{.learning_rate = 0.1});
}

static_assert(AveragingPolicy<ConcatMean, Cuda> && AveragingPolicy<ConcatMean, Host>);

TEST_CASE("ConcatMean has the same bits on both devices") {
    HostContext host(0, {.threads = 2});
    CudaContext cuda(0, {});
    for (const std::int64_t columns : {1, 4096, 10'001}) {
        std::vector<Floats> gradients;
        std::vector<const float*> rows;
        for (std::uint64_t r = 0; r < 3; ++r) gradients.push_back(normal(columns, r));
        for (const Floats& gradient : gradients) rows.push_back(gradient.data());
        const std::int64_t samples[] = {128, 128, 40};
        const GradientRows stacked{.rows = rows, .samples = samples, .total_samples = 296, .columns = columns};
        Floats mean(static_cast<std::size_t>(columns), -1.0F), expected = mean;
        ConcatMean{}.average(cuda, stacked, mean);
        finish(cuda);
        ConcatMean{}.average(host, stacked, expected);
        CHECK(same_bits(mean, expected));
    }
}

TEST_CASE("sums, the hash and the search for a NaN agree with Host's") {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    for (const std::int64_t count : {0, 1, 5, 4096, 10007}) {
        Floats values = normal(count, 3);
        const std::span<const float> read(values);
        CHECK(hash_of(cuda, read) == hash_of(host, read));
        CHECK(sum_of_squares(cuda, read) == doctest::Approx(sum_of_squares(host, read)));
        CHECK(all_finite(cuda, read));
        const Floats w = normal(count, 4);
        const GradientTerms terms{.l2 = 0.1F, .scale = 0.5F, .clip = 0.3F};
        CHECK(ops::GradientNorm<Cuda>::sum_of_squares(cuda, w.data(), values.data(), count, terms) ==
              doctest::Approx(ops::GradientNorm<Host>::sum_of_squares(host, w.data(), values.data(), count, terms)));
        Floats scaled = values, expected = values;
        scale(cuda, std::span<float>(scaled), 0.3);
        finish(cuda);
        scale(host, std::span<float>(expected), 0.3);
        CHECK(same_bits(scaled, expected));
        fill(cuda, std::span<float>(scaled), 2.5F);
        finish(cuda);
        CHECK(scaled == Floats(static_cast<std::size_t>(count), 2.5F));
        if (count == 0) continue;
        for (const float bad :
             {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
            values.back() = bad;
            CHECK_FALSE(all_finite(cuda, read));
        }
    }
}

TEST_CASE_TEMPLATE("a cross-entropy has the same bits for any number of blocks, in whatever order they run", Targets,
                   impl::LabelTargets, impl::WeightedLabelTargets<>, impl::SoftTargets<>) {
    const Restored restored;
    emulator::run_side_by_side_in(1);
    LossCase<Targets> of(130);
    const std::vector<Float16> logits = elements<Float16>(of.logits);
    const auto targets = of.targets();
    using Rows = std::remove_const_t<decltype(targets)>;
    CudaContext cuda(0, {});
    const auto run = [&](int blocks, int threads, std::vector<Float16>& gradient) {
        gradient.assign(logits.size(), Float16(7.0F));
        std::memset(impl::sums_memory(cuda).partial, 0xFF,
                    impl::SumsMemory::partial_bytes);  // not those of the run before
        LossReport report{};
        using Row = impl::CrossEntropyRow<Float16, Rows>;
        impl::launch_kernel(impl::row_reports_kernel<16, Row>, blocks, threads, cuda,
                            Row{logits.data(), gradient.data(), of.rows, targets}, of.rows, std::int64_t{2},
                            &impl::sums_memory(cuda), &report);
        finish(cuda);
        REQUIRE(emulator::failure() == "");
        return report;
    };
    std::vector<Float16> expected_gradient, gradient;
    const LossReport expected = run(1, 256, expected_gradient);
    CHECK(std::isfinite(expected.sum));
    CHECK(expected.predictions == (Targets::weighted ? 130 - 13 : 130));
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        emulator::set_seed(seed);
        for (const auto& [blocks, threads] : {std::pair{1, 1024}, {2, 64}, {3, 256}, {9, 256}, {65, 32}, {70, 32}}) {
            CAPTURE(seed);
            CAPTURE(blocks);
            CHECK(equal_reports(run(blocks, threads, gradient), expected));
            CHECK(std::memcmp(gradient.data(), expected_gradient.data(), gradient.size() * sizeof(Float16)) == 0);
        }
    }
    // A block that counts as arrived too early is found only where it pauses then.
    of.rows = 8;
    const LossReport of_few = run(1, 128, gradient);
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        emulator::set_seed(seed);
        CHECK(equal_reports(run(2, 64, gradient), of_few));
    }
    of.rows = 130;
    if constexpr (!Targets::sums_targets) {
        of.labels[100] = 11;
        of.labels[77] = 10;
        const LossReport invalid = run(65, 32, gradient);
        CHECK(std::isnan(invalid.sum));
        CHECK((invalid.bad_target == 77 && invalid.bad_value == 10));
    }
}

TEST_CASE_TEMPLATE(
    "a cross-entropy is one kernel, whose blocks are on many multiprocessors, with the same bits on each GPU", T, float,
    BFloat16, Float16) {
    const Restored restored;
    const auto run = [&](int multiprocessors, std::int64_t rows, std::int64_t blocks) {
        emulator::set_multiprocessors(multiprocessors);
        const LossCase<impl::LabelTargets> of(rows);
        const std::vector<T> logits = elements<T>(of.logits);
        std::vector<T> gradient(logits.size());
        CudaContext cuda(0, {});
        LossReport report{};
        emulator::record_work();
        ops::SoftmaxCrossEntropy<Cuda, T>(of.settings)
            .queue(cuda, logits.data(), of.labels.data(), rows / 2, gradient.data(), &report);
        finish(cuda);
        const std::vector<emulator::RecordedWork> work = emulator::recorded_costs();
        CHECK(work.size() == 1);
        CHECK(work.back().blocks == blocks);
        double sum = 0;
        ops::SoftmaxCrossEntropy<Host, float> loss(of.settings);
        HostContext host(0, {.threads = 1});
        if constexpr (std::is_same_v<T, float>)
            sum = loss.forward(host, logits.data(), of.labels.data(), rows / 2, nullptr).sum;
        if (sum != 0) CHECK(report.sum == doctest::Approx(sum).epsilon(1e-12));
        CHECK(report.weight == static_cast<double>(rows) / 2);
        CHECK(report.predictions == rows);
        return report;
    };
    // 16 lanes per row: a warp has two rows, and a block up to eight warps.
    const LossReport expected = run(132, 128, 64);
    CHECK(equal_reports(run(40, 128, 32), expected));
    CHECK(equal_reports(run(1, 128, 8), expected));
    CHECK(equal_reports(run(132, 1024, 128), run(2, 1024, 64)));
    // A block of 1,024 threads has 64 rows on each GPU, whose losses it adds.
    CHECK(equal_reports(run(132, 1100, 18), run(2, 1100, 18)));
    run(132, 2, 1);
}

TEST_CASE_TEMPLATE("a cross-entropy in 16 bits multiplies its gradient by the loss scale before it rounds it", T,
                   BFloat16, Float16) {
    LossCase<impl::LabelTargets> of(64);
    // A gradient that is 0 in half unless it is multiplied first.
    for (std::int64_t c = 0; c < of.classes; ++c)
        of.logits[static_cast<std::size_t>(c)] = c == of.labels[0] ? 20.0F : 0.0F;
    of.settings.label_smoothing = 0;
    const std::vector<T> logits = elements<T>(of.logits);
    const Floats widened_logits = widened(logits);
    CudaContext cuda(0, {});
    LossReport report{}, expected_report{};
    const ops::SoftmaxCrossEntropy<Cuda, float> loss(of.settings);
    for (const float scale_on_device : {65536.0F, 3.0F}) {
        for (const float* const by : {static_cast<const float*>(nullptr), &scale_on_device}) {
            const double factor = 0.75;
            std::vector<T> gradient(logits.size()), expected(logits.size());
            loss.in_type<T>().queue(cuda, logits.data(), of.labels.data(), 32, gradient.data(), &report, {factor, by});
            Floats in_float(logits.size());
            loss.queue(cuda, widened_logits.data(), of.labels.data(), 32, in_float.data(), &expected_report);
            if (by == nullptr)
                scale(cuda, std::span<float>(in_float), factor);
            else
                ops::TrainingStep<Cuda>::scale(cuda, in_float, factor, by);
            ops::Convert<Cuda>::run(cuda, in_float.data(), expected.data(), static_cast<std::int64_t>(expected.size()));
            finish(cuda);
            CHECK(equal_reports(report, expected_report));
            CHECK(std::memcmp(gradient.data(), expected.data(), gradient.size() * sizeof(T)) == 0);
            if (by != nullptr && scale_on_device > 3) CHECK(static_cast<float>(gradient[1]) > 0);
        }
    }
}

TEST_CASE("the blocks of a cooperative kernel wait for each other, launch after launch and on either stream") {
    CudaContext context(0, {});
    const auto scope = context.team();
    constexpr int threads = 64, rounds = 3;
    for (const int blocks : {1, 5, 16}) {
        const std::size_t count = static_cast<std::size_t>(blocks) * threads;
        CudaArena memory(count * (1 + rounds) * sizeof(int), "the test");
        auto* const values = reinterpret_cast<int*>(memory.data());
        int* const sums = values + count;
        std::vector<int> expected(count * rounds), found(count * rounds);
        for (std::size_t at = 0; at < expected.size(); ++at) {
            const int round = static_cast<int>(at / count), thread = static_cast<int>(at % threads);
            expected[at] = blocks * (thread + round) + threads * blocks * (blocks - 1) / 2;
        }
        const auto run = [&] {
            impl::launch_cooperative(add_over_blocks<rounds>, static_cast<unsigned>(blocks), threads, context, values,
                                     sums, context.grid_counter());
        };
        const auto check = [&] {
            Cuda::copy_to_host(context, reinterpret_cast<std::byte*>(found.data()), reinterpret_cast<std::byte*>(sums),
                               found.size() * sizeof(int));
            CHECK(found == expected);
        };
        run();
        check();
        run();
        check();
        context.queue_side_by_side(
            true, [] {}, run);
        check();
    }
}

TEST_CASE("a cooperative grid is one that the GPU holds at a time, and the log says where there is none") {
    const auto grid_on = [](CudaContext& context, std::int64_t most, std::int64_t least) {
        return impl::cooperative_grid(context, "a test", add_over_blocks<3>, 256, most, least);
    };
    emulator::set_multiprocessors(132);
    {
        CudaContext context(0, {});
        CHECK(grid_on(context, 100, 1) == 100);
        CHECK(grid_on(context, 2000, 1) == 132 * 8);
        emulator::set_resident_blocks(1);
        CHECK(grid_on(context, 2000, 132) == 132);
        CHECK(context.plan_choices().take_lines().empty());
        CHECK(grid_on(context, 2000, 133) == 0);
        CHECK(grid_on(context, 2000, 133) == 0);
        CHECK(context.plan_choices().take_lines() ==
              std::vector<std::string>{
                  "GPU 0 (Emulated GPU) holds 132 blocks of the kernel of a test at a time, which needs "
                  "133: its parts are kernels of their own"});
        emulator::set_resident_blocks(0);
        CudaContext without(0, {.cooperative_launch = false});
        CHECK(grid_on(without, 100, 1) == 0);
        CHECK(without.plan_choices().take_lines().empty());
    }
    emulator::set_multiprocessors(2);
    emulator::set_cooperative(false);
    CudaContext lacks(0, {});
    CHECK(grid_on(lacks, 100, 1) == 0);
    CHECK(lacks.plan_choices().take_lines() ==
          std::vector<std::string>{
              "GPU 0 (Emulated GPU) has no cooperative launches: parts of a step are kernels of their own"});
    emulator::set_cooperative(true);
}
