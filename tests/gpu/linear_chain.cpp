// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/impl/linear_chain.cuh, cupola/ops/cuda/impl/warp_tile.cuh, cupola/ops/cuda/impl/row_lanes.cuh
//
// Chains of linear layers on the emulator: each product against sums in double, for extents that are and are not multiples of a
// square's; and whole chains with their loss, whose bits are those of the same layers one by one, and of a kernel per phase.
#include "../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/ops/cuda/impl/linear_chain.cuh>
#include <cupola/ops/cuda/linear.hpp>
#include <cupola/ops/cuda/softmax_cross_entropy.hpp>
#include <cupola/ops/weighted_targets.hpp>

#include "../reference/compare.hpp"
#include "emulator/control.hpp"

using reference::at, reference::Floats, reference::same_bits, reference::values;

namespace {

/// The error of a result, in parts of the sum of the magnitudes of the terms.
template <class T>
double rounding(bool tf32) {
    if (std::is_same_v<T, BFloat16>) return 1.0 / 128;
    if (std::is_same_v<T, Float16>) return 1.0 / 1024;
    return tf32 ? 1.0 / 512 : 1e-6;
}

struct Extents {
    std::int64_t samples, inputs, outputs;
};

/// One layer: each step against sums in double. `offset` elements before each factor make it unaligned.
template <class T>
void check_products(const Extents& e, bool tf32, bool accumulate, bool masked, std::int64_t offset) {
    CAPTURES(e.samples, e.inputs, e.outputs, tf32, accumulate, masked, offset);
    using impl::ChainStep;
    const auto [n, in, out] = e;
    const std::vector<T> x = values<T>(offset + n * in, 1), w = values<T>(offset + in * out, 2),
                         g = values<T>(offset + n * out, 3);
    const Floats b = values<float>(out, 4), of_weight_before = values<float>(in * out, 5),
                 of_bias_before = values<float>(out, 6);
    const std::int64_t parts = (n + 31) / 32;
    std::vector<T> y(static_cast<std::size_t>(n * out), T(7.0F)), dx(static_cast<std::size_t>(n * in), T(7.0F));
    Floats of_weight = of_weight_before, of_bias = of_bias_before, sums(static_cast<std::size_t>(parts * in), 9.0F);
    CudaContext cuda(0, {.tf32 = tf32});
    const int samples = static_cast<int>(n), inputs = static_cast<int>(in), outputs = static_cast<int>(out);
    const T *const px = x.data() + offset, *const pw = w.data() + offset, *const pg = g.data() + offset;
    const bool x_packs = impl::takes_packs(px, in), w_packs = impl::takes_packs(pw, in),
               g_packs = impl::takes_packs(pg, out);
    CHECK((offset == 0 || !x_packs));
    const std::int64_t before = emulator::kernels();
    impl::linear_chain<T>(cuda, 1).add({.relu = masked,
                                        .left_packs = x_packs,
                                        .right_packs = w_packs,
                                        .rows = samples,
                                        .columns = outputs,
                                        .depth = inputs,
                                        .left = px,
                                        .right = pw,
                                        .to = y.data(),
                                        .bias = accumulate ? b.data() : nullptr});
    auto& chain = impl::linear_chain<T>(cuda, 3);
    chain.add({.step = ChainStep::input_gradient,
               .left_packs = g_packs,
               .right_packs = w_packs,
               .rows = samples,
               .columns = inputs,
               .depth = outputs,
               .left = pg,
               .right = pw,
               .to = dx.data(),
               .mask = masked ? px : nullptr,
               .sums = masked ? sums.data() : nullptr});
    chain.add({.step = ChainStep::weight_gradient,
               .accumulate = accumulate,
               .left_packs = g_packs,
               .right_packs = x_packs,
               .rows = outputs,
               .columns = inputs,
               .depth = samples,
               .left = pg,
               .right = px,
               .to = of_weight.data()});
    std::vector<T> of_output = g;
    if (!masked)
        chain.add({.step = ChainStep::bias_gradient,
                   .accumulate = accumulate,
                   .rows = samples,
                   .columns = outputs,
                   .to = of_output.data() + offset,
                   .sums = of_bias.data()});
    else
        // The mask of the layer's own ReLU, of what the first phase has computed.
        impl::linear_chain<T>(cuda, 1).add({.step = ChainStep::bias_gradient,
                                            .accumulate = accumulate,
                                            .rows = samples,
                                            .columns = outputs,
                                            .to = of_output.data() + offset,
                                            .mask = y.data(),
                                            .sums = of_bias.data()});
    cuda.synchronize();
    REQUIRE(emulator::failure() == "");
    CHECK(emulator::kernels() == before + 1);

    const double error = rounding<T>(tf32), sum_error = tf32 ? error : 2e-6;
    for (std::int64_t r = 0; r < n; ++r) {
        for (std::int64_t o = 0; o < out; ++o) {
            double sum = accumulate ? at(b, o) : 0, size = std::abs(sum);
            for (std::int64_t i = 0; i < in; ++i) {
                const double term = at(x, offset + r * in + i) * at(w, offset + o * in + i);
                sum += term;
                size += std::abs(term);
            }
            if (masked) sum = std::fmax(sum, 0);
            REQUIRE(std::abs(at(y, r * out + o) - sum) <= error * size);
        }
    }
    for (std::int64_t i = 0; i < in; ++i) {
        Floats of_sums(static_cast<std::size_t>(parts));
        for (std::int64_t r = 0; r < n; ++r) {
            double sum = 0, size = 0;
            for (std::int64_t o = 0; o < out; ++o) {
                const double term = at(g, offset + r * out + o) * at(w, offset + o * in + i);
                sum += term;
                size += std::abs(term);
            }
            if (masked && !(at(x, offset + r * in + i) > 0)) sum = size = 0;
            REQUIRE(std::abs(at(dx, r * in + i) - sum) <= error * size);
            // The sums are of what is stored.
            of_sums[static_cast<std::size_t>(r / 32)] += static_cast<float>(at(dx, r * in + i));
        }
        for (std::int64_t p = 0; p < parts && masked; ++p)
            REQUIRE(std::abs(at(sums, p * in + i) - at(of_sums, p)) <= 1e-4 * (1 + std::abs(at(of_sums, p))));
        for (std::int64_t o = 0; o < out; ++o) {
            double sum = accumulate ? at(of_weight_before, o * in + i) : 0, size = std::abs(sum);
            for (std::int64_t r = 0; r < n; ++r) {
                const double term = at(g, offset + r * out + o) * at(x, offset + r * in + i);
                sum += term;
                size += std::abs(term);
            }
            REQUIRE(std::abs(at(of_weight, o * in + i) - sum) <= sum_error * size);
        }
    }
    for (std::int64_t o = 0; o < out; ++o) {
        double sum = accumulate ? at(of_bias_before, o) : 0, size = std::abs(sum);
        for (std::int64_t r = 0; r < n; ++r) {
            const double term = masked && !(at(y, r * out + o) > 0) ? 0 : at(g, offset + r * out + o);
            REQUIRE(at(of_output, offset + r * out + o) == term);
            sum += term;
            size += std::abs(term);
        }
        REQUIRE(std::abs(at(of_bias, o) - sum) <= 2e-6 * size);
    }
    if (!masked) CHECK(sums[0] == 9.0F);
}

/// Memory of the device, which on the emulator the host can use too. The stand-ins of libraries take no other.
template <class V>
struct DeviceMemory {
    using value_type = V;
    DeviceMemory() = default;
    template <class U>
    DeviceMemory(const DeviceMemory<U>&) {}  // NOLINT: an allocator converts
    V* allocate(std::size_t count) {
        void* memory = nullptr;
        REQUIRE(cudaMalloc(&memory, count * sizeof(V)) == cudaSuccess);
        return static_cast<V*>(memory);
    }
    void deallocate(V* memory, std::size_t) { cudaFree(memory); }
    bool operator==(const DeviceMemory&) const = default;
};
template <class V>
using OnDevice = std::vector<V, DeviceMemory<V>>;
template <class V>
OnDevice<V> on_device(const std::vector<V>& of) {
    return {of.begin(), of.end()};
}

/// Four layers with ReLUs between them, and the loss.
template <class T, class Targets>
class Chain {
public:
    static constexpr std::int64_t extents[] = {72, 136, 40, 33, 10};
    static constexpr std::size_t layers = 4;

    Chain(CudaContext& cuda, std::int64_t batch) : cuda_(cuda), batch_(batch) {
        for (std::size_t k = 0; k < layers; ++k) {
            const bool last = k + 1 == layers;
            const BuildContext<Cuda, T> build{.context = cuda,
                                              .batch = batch,
                                              .input = {extents[k]},
                                              .output = {extents[k + 1]},
                                              .activation = last ? Activation::none : Activation::relu};
            layer_.push_back(ops::Linear<Cuda, T>(build, LinearShape{extents[k], extents[k + 1], k != 1}));
            weight_.push_back(on_device(values<float>(extents[k] * extents[k + 1], 10 + k)));
            for (float& each : weight_.back()) each /= 8;
            bias_.push_back(on_device(values<float>(extents[k + 1], 20 + k)));
            packed_.emplace_back(layer_[k].needs().packed / sizeof(float) + 1);
            saved_.emplace_back(layer_[k].needs().saved / sizeof(float) + 1);
            scratch_.emplace_back(layer_[k].needs().scratch / sizeof(float) + 1);
            sums_.emplace_back(static_cast<std::size_t>(1024 * extents[k]));
            of_weight.emplace_back(weight_[k].size(), 3.0F);
            of_bias.emplace_back(bias_[k].size(), 3.0F);
        }
        for (std::size_t k = 0; k <= layers; ++k) {
            value.push_back(on_device(values<T>(batch * extents[k], 30 + k)));
            gradient.push_back(OnDevice<T>(value.back().size(), T(5.0F)));
        }
        for (std::int64_t r = 0; r < batch; ++r) {
            labels_.push_back(static_cast<std::int32_t>(r * 7 % 10));
            for (std::int64_t c = 0; c < 10; ++c) soft_.push_back(c == r % 10 ? 0.75F : 0.25F / 9);
        }
    }

    /// `after` is called after each operation. Returns the number of kernels.
    std::int64_t run(const std::function<void()>& after) {
        const std::int64_t before = emulator::kernels();
        std::vector<BackwardArgs<Cuda, T>> all(layers, {{.context = cuda_}});
        for (std::size_t k = 0; k < layers; ++k) {
            BackwardArgs<Cuda, T>& args = all[k];
            args.input = value[k].data();
            args.output = value[k + 1].data();
            args.output_gradient = gradient[k + 1].data();
            args.input_gradient = gradient[k].data();
            args.parameters = {weight_[k].data(), bias_[k].data()};
            args.parameter_gradients = {of_weight[k].data(), of_bias[k].data()};
            args.packed = reinterpret_cast<std::byte*>(packed_[k].data());
            args.saved = reinterpret_cast<std::byte*>(saved_[k].data());
            args.scratch = reinterpret_cast<std::byte*>(scratch_[k].data());
            const std::int64_t parts = layer_[k].gradient_sum_parts();
            if (k > 0 && layer_[k - 1].reads_gradient_sums() && parts > 0) {
                args.input_gradient_sums = {sums_[k].data(), parts, true};
                all[k - 1].output_gradient_sums = args.input_gradient_sums;
            }
            if constexpr (!std::is_same_v<T, float>) layer_[k].prepare(args);
        }
        cuda_.synchronize();
        prepared_ = emulator::kernels() - before;
        // As in a step, which defers the sums of parts to the end.
        const CudaContext::DeferScope scope(cuda_);
        for (std::size_t k = 0; k < layers; ++k) {
            layer_[k].forward(all[k]);
            after();
        }
        const ops::SoftmaxCrossEntropy<Cuda, T, Targets> loss(
            ops::CrossEntropySettings{.classes = 10, .label_smoothing = 0.1F, .class_weights = weights()});
        if constexpr (Targets::sums_targets) {
            loss.queue(cuda_, value[layers].data(), soft_.data(), batch_, gradient[layers].data(), &report);
        } else {
            loss.queue(cuda_, value[layers].data(), labels_.data(), batch_, gradient[layers].data(), &report);
        }
        after();
        for (std::size_t k = layers; k-- > 0;) {
            layer_[k].backward(all[k]);
            after();
        }
        cuda_.launch_deferred();
        cuda_.synchronize();
        return emulator::kernels() - before - prepared_;
    }

    std::vector<OnDevice<T>> value, gradient;
    std::vector<OnDevice<float>> of_weight, of_bias;
    LossReport report{};

private:
    [[nodiscard]] std::span<const float> weights() const {
        static const Floats all{1, 2, 1, 0.5F, 1, 3, 1, 1, 1, 2};
        if constexpr (std::is_same_v<Targets, impl::LabelTargets>) return {};
        return all;
    }
    CudaContext& cuda_;
    std::int64_t batch_, prepared_ = 0;
    std::vector<ops::Linear<Cuda, T>> layer_;
    std::vector<OnDevice<float>> weight_, bias_, packed_, saved_, scratch_, sums_;
    OnDevice<std::int32_t> labels_;
    OnDevice<float> soft_;
};

template <class C>
bool same(const C& a, const C& b) {
    bool result = a.report.sum == b.report.sum && a.report.correct == b.report.correct &&
                  a.report.weight == b.report.weight && a.report.predictions == b.report.predictions &&
                  a.report.bad_target == b.report.bad_target;
    for (std::size_t k = 0; k < C::layers; ++k)
        result = result && same_bits(a.value[k + 1], b.value[k + 1]) && same_bits(a.gradient[k], b.gradient[k]) &&
                 same_bits(a.of_weight[k], b.of_weight[k]) && same_bits(a.of_bias[k], b.of_bias[k]);
    return result;
}
template <class V>
double distance(const V& a, const V& b) {
    double above = 0, below = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(static_cast<float>(a[i])) - static_cast<double>(static_cast<float>(b[i]));
        above += d * d;
        below += static_cast<double>(static_cast<float>(b[i])) * static_cast<double>(static_cast<float>(b[i]));
    }
    return std::sqrt(above / below);
}

/// Restores the emulated devices.
struct Restored {
    ~Restored() {
        emulator::set_cooperative(true);
        emulator::set_multiprocessors(2);
    }
};

template <class T, class Targets>
void check_chain(std::int64_t batch, bool tf32) {
    CAPTURES(batch, tf32);
    const Restored restored;
    const auto nothing = [] {};
    const auto result_of = [&](const CudaOptions& options, bool one_by_one, std::int64_t kernels) {
        CudaContext cuda(0, options);
        Chain<T, Targets> chain(cuda, batch);
        const auto launch = [&] { cuda.launch_joined(); };
        const std::int64_t count = one_by_one ? chain.run(launch) : chain.run(nothing);
        CHECK(emulator::failure() == "");
        if (kernels > 0) CHECK(count == kernels);
        return chain;
    };
    const std::int64_t before = emulator::cooperative_kernels();
    // The chain, and the sums for the biases of the layers with ReLUs.
    const Chain<T, Targets> joined = result_of({.tf32 = tf32}, false, 2);
    CHECK(emulator::cooperative_kernels() == before + 1);
    emulator::set_multiprocessors(7);
    CHECK(same(joined, result_of({.tf32 = tf32}, false, 2)));
    emulator::set_multiprocessors(2);
    // A kernel per phase: four layers forward, the loss, four layers backward.
    CHECK(same(joined, result_of({.tf32 = tf32, .cooperative_launch = false}, false, 9 + 1)));
    emulator::set_cooperative(false);
    CHECK(same(joined, result_of({.tf32 = tf32}, false, 9 + 1)));
    emulator::set_cooperative(true);
    // Each operation alone, the loss by its own kernel.
    CHECK(same(joined, result_of({.tf32 = tf32}, true, 9 + 1)));
    // And the products of the library. The mask of a ReLU differs where rounding changes the sign of its input.
    const Chain<T, Targets> library = result_of({.tf32 = tf32, .linear_chains = false}, false, 0);
    const double error = tf32 ? 1e-3 : std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, Float16> ? 2e-3 : 2e-2;
    const double gradient_error = std::is_same_v<T, float> ? error : 10 * error;
    CHECK(joined.report.sum == doctest::Approx(library.report.sum).epsilon(error));
    CHECK(joined.report.predictions == library.report.predictions);
    CHECK(joined.report.weight == library.report.weight);
    for (std::size_t k = 0; k < joined.layers; ++k) {
        CAPTURE(k);
        CHECK(distance(joined.value[k + 1], library.value[k + 1]) < error);
        CHECK(distance(joined.gradient[k], library.gradient[k]) < gradient_error);
        CHECK(distance(joined.of_weight[k], library.of_weight[k]) < gradient_error);
        if (k != 1) CHECK(distance(joined.of_bias[k], library.of_bias[k]) < gradient_error);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("products of a chain are those of sums in double", T, float, BFloat16, Float16) {
    for (const bool tf32 : {false, true}) {
        if (tf32 && !std::is_same_v<T, float>) continue;
        check_products<T>({1, 1, 1}, tf32, false, false, 0);
        check_products<T>({33, 40, 35}, tf32, true, true, 0);
        check_products<T>({64, 32, 64}, tf32, false, true, 0);
        check_products<T>({31, 17, 9}, tf32, true, false, 1);
        check_products<T>({40, 24, 16}, tf32, true, true, 1);
        // Sums whose terms are divided among two and among eight warps.
        check_products<T>({5, 130, 200}, tf32, false, true, 0);
        check_products<T>({3, 10, 1000}, tf32, true, false, 0);
        check_products<T>({300, 9, 10}, tf32, false, false, 0);
    }
}

TEST_CASE_TEMPLATE("a chain of layers and its loss is one kernel, with the bits of its parts", T, float, BFloat16,
                   Float16) {
    for (const std::int64_t batch : {1, 40, 150}) check_chain<T, impl::LabelTargets>(batch, false);
    if constexpr (std::is_same_v<T, float>) check_chain<T, impl::LabelTargets>(33, true);
    check_chain<T, impl::WeightedLabelTargets<>>(40, false);
    check_chain<T, impl::SoftTargets<>>(40, false);
}

TEST_CASE("layers that are large enough to fill a GPU are not in a chain") {
    using Limits = impl::LinearChainLimits;
    static_assert(Limits::fits(128, {2304, 384}) && Limits::fits(256, {2304, 384}) && Limits::fits(1024, {192, 10}));
    static_assert(!Limits::fits(2048, {2304, 384}) && !Limits::fits(1025, {192, 10}) && !Limits::fits(1, {4096, 4096}));
    static_assert(!Limits::fits(0, {192, 10}) && !Limits::fits(1, {std::int64_t{1} << 40, std::int64_t{1} << 40}));
    const Restored restored;
    const auto kernels_of = [](std::int64_t batch) {
        CudaContext cuda(0, {});
        const BuildContext<Cuda, float> build{.context = cuda, .batch = batch, .input = {8}, .output = {10}};
        ops::Linear<Cuda, float> layer(build, LinearShape{8, 10});
        return layer.library_products();
    };
    CHECK(kernels_of(1024) == 0);
    CHECK(kernels_of(1025) > 0);
}

TEST_CASE("a loss of other logits than the chain's last does not join it") {
    CudaContext cuda(0, {});
    const std::vector<float> x = values<float>(8 * 4, 1), w = values<float>(4 * 10, 2),
                             other = values<float>(8 * 10, 3);
    Floats y(80), gradient(80), of_other(80);
    const std::vector<std::int32_t> labels(8, 3);
    const ops::SoftmaxCrossEntropy<Cuda, float> loss(10, 0.0F);
    LossReport expected{}, report{};
    loss.queue(cuda, other.data(), labels.data(), 8, of_other.data(), &expected);
    cuda.synchronize();
    const std::int64_t before = emulator::kernels();
    impl::linear_chain<float>(cuda, 1).add(
        {.rows = 8, .columns = 10, .depth = 4, .left = x.data(), .right = w.data(), .to = y.data()});
    loss.queue(cuda, other.data(), labels.data(), 8, gradient.data(), &report);
    cuda.synchronize();
    CHECK(emulator::kernels() == before + 2);
    CHECK(report.sum == expected.sum);
    CHECK(gradient == of_other);
}
