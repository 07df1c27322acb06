// SPDX-License-Identifier: Apache-2.0
//
// Kernels over more than 2^32 threads: what they compute at the end of an array is what they compute for a small one. The
// arrays lie in memory that is only reserved, and of each grid only the last blocks run on the emulator.
#include "../test.hpp"

#include <sys/mman.h>

#include <cupola/cuda.hpp>
#include <cupola/ops/cuda/impl/tiled_product.cuh>
#include <cupola/ops/elementwise.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/update_parameters.hpp>

#include "../reference/compare.hpp"
#include "emulator/control.hpp"

namespace {

constexpr std::int64_t two_32 = std::int64_t{1} << 32;
/// Threads whose results are compared: those of the last block.
constexpr std::int64_t compared = impl::block_threads;

/// Zeros in memory of which only the pages that are written exist.
template <class T>
class Reserved : NotCopied {
public:
    explicit Reserved(std::int64_t count) : count_(count), bytes_(static_cast<std::size_t>(count) * sizeof(T)) {
        memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE_MESSAGE(memory_ != MAP_FAILED, "the system does not reserve ", bytes_, " bytes of addresses");
    }
    ~Reserved() { munmap(memory_, bytes_); }

    [[nodiscard]] T* data() const { return static_cast<T*>(memory_); }
    /// The last n elements.
    [[nodiscard]] T* last(std::int64_t n) const { return data() + (count_ - n); }

private:
    std::int64_t count_;
    std::size_t bytes_;
    void* memory_ = nullptr;
};

template <class T>
void set(T* to, std::int64_t count, std::uint64_t seed) {
    for (const float value : reference::Random(seed).normal(count)) *to++ = T(value);
}

/// Whether the last n elements are the same numbers, and not all zero.
template <class T>
bool same_at_the_end(const Reserved<T>& large, const Reserved<T>& small, std::int64_t n) {
    bool same = true, zero = true;
    for (std::int64_t i = 0; i < n; ++i) {
        const auto value = static_cast<float>(large.last(n)[i]), expected = static_cast<float>(small.last(n)[i]);
        same = same && value == expected;
        zero = zero && expected == 0.0F;
    }
    return same && !zero;
}

/// A GPU with so many multiprocessors that each thread of a grid processes one index, of whose blocks only the last two run.
struct LargeGpu : NotCopied {
    LargeGpu() {
        emulator::set_multiprocessors(1 << 26);
        emulator::run_only_last(2);
    }
    ~LargeGpu() {
        emulator::set_multiprocessors(2);
        emulator::run_only_last(0);
    }
};

struct Options {
    Activation activation = Activation::none;
    /// Whether statistics are those of the batch.
    bool training = true;
    /// Elements per thread.
    std::int64_t in_forward = 1, in_backward = 1;
    std::size_t parameters = 0;
};

/// Compares an operation's results for a batch with more than 2^32 threads in both directions with those for its last samples.
template <class T, class Op, class... OfShape>
void check(const Shape& input, const Shape& output, const Options& options, const OfShape&... shape) {
    CAPTURE(type_name<Op>());
    const LargeGpu gpu;
    CudaContext context(0, {});
    const std::int64_t some = 600, elements = std::max(options.in_forward, options.in_backward),
                       many = two_32 * elements / std::min(input.size(), output.size()) + some;
    Reserved<T> y(many * output.size()), dx(many * input.size()), small_y(some * output.size()),
        small_dx(some * input.size());
    const auto run = [&](std::int64_t batch, T* to, T* gradient) {
        const BuildContext<Cuda, T> build{
            .context = context, .batch = batch, .input = input, .output = output, .activation = options.activation};
        Op op(build, shape...);
        const MemoryNeeds needs = memory_needs(op);
        const Reserved<T> x(batch * input.size()), second(batch * input.size()), dy(batch * output.size()),
            d_second(batch * input.size());
        const Reserved<std::byte> saved(static_cast<std::int64_t>(needs.saved + 1)),
            scratch(static_cast<std::int64_t>(needs.scratch + 1));
        set(x.last(some * input.size()), some * input.size(), 1);
        set(second.last(some * input.size()), some * input.size(), 2);
        set(dy.last(some * output.size()), some * output.size(), 3);
        std::vector<float> parameters(static_cast<std::size_t>(input.channels()), 0.75F), gradients(parameters.size());
        BackwardArgs<Cuda, T> args{{.context = context,
                                    .input = x.data(),
                                    .output = to,
                                    .second_input = second.data(),
                                    .saved = saved.data(),
                                    .scratch = scratch.data(),
                                    .training = options.training}};
        for (std::size_t p = 0; p < options.parameters; ++p) {
            args.parameters[p] = args.buffers[p] = parameters.data();
            args.parameter_gradients[p] = gradients.data();
        }
        args.output_gradient = dy.data();
        args.input_gradient = gradient;
        args.second_input_gradient = d_second.data();
        op.forward(args);
        op.backward(args);
        context.synchronize();
    };
    run(some, small_y.data(), small_dx.data());
    run(many, y.data(), dx.data());
    CHECK(same_at_the_end(y, small_y, compared * options.in_forward));
    CHECK(same_at_the_end(dx, small_dx, compared * options.in_backward));
}

/// Writes the sums of a product side by side.
struct SumsTo {
    float* to;
    std::int64_t columns;
    void operator()(std::int64_t row, std::int64_t column, float sum) const { to[row * columns + column] = sum; }
};

struct HalfOfSum {
    CUPOLA_HOST_DEVICE void operator()(float& y, float a, float b) const { y = 0.5F * (a + b); }
};

}  // namespace

TEST_CASE_TEMPLATE("an operation over more than 2^32 threads computes its last samples as those of a small batch", T,
                   float, BFloat16) {
    constexpr std::int64_t n = impl::pack_size<T>, chunk = impl::norm_chunk;
    const auto pooling = [](std::int64_t channels, PoolingKind kind) {
        return PoolingShape{window_axis(4, 3, 2, Padding::same), window_axis(4, 3, 2, Padding::same), channels, kind};
    };
    const Shape image{4, 4, 8}, smaller{2, 2, 8}, odd{4, 4, 3}, odd_smaller{2, 2, 3};
    const LocalResponseNormShape norm{.channels = 8, .radius = 4}, any_norm{.channels = 3, .radius = 1};
    using Normed = ops::LocalResponseNorm<Cuda, T>;
    check<T, Normed>(image, image, {.in_forward = chunk, .in_backward = chunk}, norm);
    check<T, Normed>(odd, odd, {}, any_norm);
    using Pooled = ops::Pooling<Cuda, T>;
    check<T, Pooled>(image, smaller, {.in_forward = n, .in_backward = n}, pooling(8, PoolingKind::max));
    check<T, Pooled>(odd, odd_smaller, {}, pooling(3, PoolingKind::max));
    check<T, Pooled>(image, smaller, {.in_forward = n, .in_backward = n}, pooling(8, PoolingKind::average));
    check<T, ops::PoolThenLrn<Cuda, T>>(image, smaller, {.in_forward = chunk, .in_backward = n},
                                        pooling(8, PoolingKind::max), norm);
    check<T, ops::LrnThenPool<Cuda, T>>(image, smaller, {.in_forward = chunk, .in_backward = chunk}, norm,
                                        pooling(8, PoolingKind::max));
    check<T, ops::Upsampling<Cuda, T>>(smaller, image, {.in_forward = n, .in_backward = n},
                                       UpsamplingShape{.height = 2, .width = 2, .channels = 8, .factor = 2});
    check<T, ops::Add<Cuda, T>>(image, image, {.activation = Activation::relu, .in_forward = n, .in_backward = n});
    check<T, ops::BatchNorm<Cuda, T>>(image, image, {.training = false, .parameters = 2},
                                      BatchNormShape{.channels = 8});
}

TEST_CASE("a kernel over more than 2^32 threads writes the last elements, with and without packs") {
    const LargeGpu gpu;
    CudaContext context(0, {});
    for (const std::int64_t start : {0, 1}) {
        CAPTURE(start);
        const std::int64_t count = start == 0 ? 4 * two_32 + 7 : two_32 + 7, some = 600 * 4 + 7;
        const auto run = [&](std::int64_t elements, float* to) {
            const Reserved<float> a(start + elements), b(start + elements);
            set(a.last(some), some, 1);
            set(b.last(some), some, 2);
            for_each_element(context, elements, HalfOfSum{}, to + start, static_cast<const float*>(a.data() + start),
                             static_cast<const float*>(b.data() + start));
            context.synchronize();
        };
        const Reserved<float> y(start + count), small(start + some);
        run(count, y.data());
        run(some, small.data());
        CHECK(same_at_the_end(y, small, compared));
    }
}

TEST_CASE("an optimiser changes the last of more than 2^32 parameters") {
    const LargeGpu gpu;
    CudaContext context(0, {});
    const Adam adam{.learning_rate = 0.1};
    std::int64_t some = 0;
    const auto run = [&](std::int64_t elements, float* w) {
        const Reserved<float> gradient(elements), state(2 * elements);
        set(w + (elements - some), some, 1);
        set(gradient.last(some), some, 2);
        const Segment segment{0, elements, 0.0, 2};
        update_parameters(adam, Update<Cuda>{.context = context,
                                             .parameters = w,
                                             .gradient = gradient.data(),
                                             .state = state.data(),
                                             .elements = elements,
                                             .segments = {&segment, 1},
                                             .step = 2});
        context.synchronize();
    };
    // With all arrays at multiples of 16 bytes, in packs, and with the second moments beside them, one by one.
    for (const std::int64_t rest : {8, 7}) {
        CAPTURE(rest);
        const std::int64_t count = 4 * two_32 + rest;
        some = 600 * 4 + rest;
        const Reserved<float> w(count), small(some), before(some);
        set(before.data(), some, 1);
        run(count, w.data());
        run(some, small.data());
        CHECK(same_at_the_end(w, small, compared));
        CHECK_FALSE(same_at_the_end(w, before, compared));
    }
}

TEST_CASE("a sum reads the last of more than 2^32 elements") {
    const LargeGpu gpu;
    CudaContext context(0, {});
    const std::int64_t count = two_32 + (1 << 20), threads = impl::max_partial_sums * impl::block_threads;
    struct BeyondTwo32 {
        std::uint64_t operator()(std::int64_t i, std::int64_t) const {
            return i > two_32 ? static_cast<std::uint64_t>(i - two_32) : 0;
        }
    };
    std::uint64_t sum = 0, expected = 0;
    impl::reduce<std::uint64_t>(context, count, BeyondTwo32{}, impl::SumTo<std::uint64_t>{&sum});
    context.synchronize();
    for (std::int64_t i = two_32; i < count; ++i) {
        if (i % threads >= threads - 2 * impl::block_threads) expected += static_cast<std::uint64_t>(i - two_32);
    }
    CHECK(sum == expected);
}

TEST_CASE("the mask and the sum of rows reach the last of more than 2^32 elements") {
    const LargeGpu gpu;
    const CudaContext context(0, {});
    const std::int64_t channels = 8, rows = two_32 / channels + 512, some = 512;
    const auto run = [&](std::int64_t of, BFloat16* gradient) {
        const impl::RowSlabs slabs(of, channels);
        const Reserved<BFloat16> y(of * channels);
        const Reserved<float> partial(slabs.slabs * channels);
        set(gradient + (of - some) * channels, some * channels, 1);
        set(y.last(some * channels), some * channels, 2);
        impl::mask_and_sum_slabs(context, slabs, y.data(), gradient, partial.data());
        context.synchronize();
        for (std::int64_t c = 1; c <= channels; ++c) CHECK(*partial.last(c) != 0.0F);
    };
    const Reserved<BFloat16> gradient(rows * channels), small(some * channels);
    run(rows, gradient.data());
    run(some, small.data());
    CHECK(same_at_the_end(gradient, small, 64 * channels));  // the rows of the last two slabs of the small one
}

TEST_CASE("a loss over more than 2^32 logits computes its last row as that of a small batch") {
    const LargeGpu gpu;
    const CudaContext context(0, {});
    const std::int64_t classes = 1 << 22, rows = 1025, some = 4096;
    const auto run = [&](std::int64_t of, BFloat16* gradient) {
        const Reserved<BFloat16> logits(of * classes);
        set(logits.last(some), some, 1);
        std::vector<std::int32_t> labels(static_cast<std::size_t>(of), static_cast<std::int32_t>(classes - 3));
        LossReport report{};
        ops::SoftmaxCrossEntropy<Cuda, BFloat16>(classes, 0.0F)
            .queue(context, logits.data(), labels.data(), of, gradient, &report);
        context.synchronize();
    };
    const Reserved<BFloat16> gradient(rows * classes), small(classes);
    run(rows, gradient.data());
    run(1, small.data());
    for (const std::int64_t c : {1, 2, 3, 4096, 1 << 22}) {
        const auto expected = static_cast<double>(static_cast<float>(small.last(c)[0])) / static_cast<double>(rows);
        CHECK(expected != 0);
        CHECK(static_cast<double>(static_cast<float>(gradient.last(c)[0])) == doctest::Approx(expected).epsilon(0.01));
    }
}

TEST_CASE("a product with more than 2^32 sums writes the last one") {
    const LargeGpu gpu;
    const CudaContext context(0, {});
    // The last square of sums is the last block's, with 2^20 blocks.
    const std::int64_t rows = 1 << 27, columns = 33, depth = 3;
    const Reserved<float> left(rows * depth), right(depth * columns), sums(rows * columns);
    set(left.last(32 * depth), 32 * depth, 1);
    set(right.data(), depth * columns, 2);
    const impl::ProductLayout layout{.rows = rows,
                                     .columns = columns,
                                     .depth = depth,
                                     .left_row = depth,
                                     .left_depth = 1,
                                     .right_depth = columns,
                                     .right_column = 1};
    impl::TiledProduct(layout, false).run(context, left.data(), right.data(), nullptr, SumsTo{sums.data(), columns});
    context.synchronize();
    float expected = 0;
    for (std::int64_t k = 0; k < depth; ++k)
        expected = std::fma(left.last(depth)[k], right.data()[k * columns + columns - 1], expected);
    CHECK(expected != 0.0F);
    CHECK(*sums.last(1) == expected);
}
