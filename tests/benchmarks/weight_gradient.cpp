// SPDX-License-Identifier: Apache-2.0
//
// The weight gradients of images of few channels and of depthwise convolutions beside oneDNN's and beside a loop of
// multiply-adds in registers, by turns in one process: the best times, and the multiply-adds as a part of those of the
// loop. Errors are norms of the difference to sums in double over the norm of the result.
//
//   weight_gradient [threads] [rounds] [relu]     `relu` applies a mask in the pass, which oneDNN's does not
#include <random>

#include <oneapi/dnnl/dnnl.h>

#include <cupola/host.hpp>
#include <cupola/ops/host/impl/depthwise_weight_gradient.hpp>
#include <cupola/ops/host/impl/narrow_weight_gradient.hpp>

#include "../reference/convolution.hpp"
#include "../standard.hpp"

using namespace cupola;

namespace {

struct Case {
    std::int64_t batch, size, in, out, window, stride = 1, dilation = 1, groups = 1;
};

void check(dnnl_status_t status) {
    if (status == dnnl_success) return;
    std::fprintf(stderr, "weight_gradient: oneDNN failed with status %d\n", static_cast<int>(status));
    std::exit(1);
}

dnnl_memory_desc_t layout(std::initializer_list<std::int64_t> dims, dnnl_format_tag_t tag) {
    dnnl_dims_t sizes{};
    std::copy(dims.begin(), dims.end(), sizes);
    dnnl_memory_desc_t result;
    check(dnnl_memory_desc_create_with_tag(&result, static_cast<int>(dims.size()), sizes, dnnl_f32, tag));
    return result;
}

template <class Function>
double milliseconds(Function f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

constexpr std::int64_t loop_steps = 300000;
constexpr std::size_t loop_sums = 12;

/// Multiply-adds of one thread that wait for nothing; returns a number that depends on all.
float multiply_add_loop(float factor) {
    impl::Lanes sums[loop_sums];
    for (std::size_t i = 0; i < loop_sums; ++i) sums[i] = impl::Lanes{} + static_cast<float>(i);  // none equals another
    const impl::Lanes by = impl::Lanes{} + factor;
    for (std::int64_t step = 0; step < loop_steps; ++step)
        impl::for_each_index<loop_sums>([&](auto i) __attribute__((always_inline)) { sums[i] = sums[i] * by + by; });
    float result = 0;
    for (const impl::Lanes& sum : sums) result += sum[0];
    return result;
}

struct Tensor {
    explicit Tensor(std::int64_t size)
        : count(static_cast<std::size_t>(size)), arena(aligned(count * sizeof(float)), "the benchmark's tensors") {}
    [[nodiscard]] float* data() { return reinterpret_cast<float*>(arena.data()); }
    [[nodiscard]] std::span<float> values() { return {data(), count}; }
    std::size_t count;
    HostArena arena;
};

/// The calls of oneDNN: the gradients, then the weight's in the plain layout.
struct Direct {
    struct Call {
        dnnl_primitive_t primitive = nullptr;
        std::vector<dnnl_exec_arg_t> arguments;
    };
    void add(dnnl_primitive_desc_t description, dnnl_engine_t engine,
             std::initializer_list<std::tuple<int, const_dnnl_memory_desc_t, float*>> tensors) {
        Call call;
        check(dnnl_primitive_create(&call.primitive, description));
        for (const auto& [argument, where, values] : tensors) {
            dnnl_memory_t memory;
            check(dnnl_memory_create(&memory, where, engine, values));
            call.arguments.push_back({argument, memory});
        }
        calls.push_back(std::move(call));
    }
    void operator()() const {
        for (const Call& call : calls)
            check(dnnl_primitive_execute(call.primitive, stream, static_cast<int>(call.arguments.size()),
                                         call.arguments.data()));
        check(dnnl_stream_wait(stream));
    }
    dnnl_stream_t stream = nullptr;
    std::vector<Call> calls;
};

template <class Kernel>
void compare(HostContext& context, int rounds, bool relu, const Case& c) {
    const auto [batch, size, in, out, window, stride, dilation, groups] = c;
    const WindowAxis axis = window_axis(size, window, stride, Padding::same, dilation);
    const reference::Axis reference_axis = reference::same(size, window, stride, dilation);
    const reference::Convolution reference{batch, reference_axis, reference_axis, in, out, groups};
    const auto own = [&, &in = in, &out = out, &groups = groups, &batch = batch] {
        const ConvolutionShape shape{axis, axis, in, out, true, groups};
        if constexpr (std::same_as<Kernel, impl::NarrowWeightGradient>) {
            return Kernel(shape, batch);
        } else {
            return Kernel(shape, batch, context.threads());
        }
    }();
    Tensor x(reference.input_size()), dy(reference.output_size()), y(reference.output_size());
    Tensor weight(reference.weight_size()), bias(out), direct_weight(reference.weight_size()), direct_bias(out);
    Tensor scratch(static_cast<std::int64_t>(own.scratch_bytes() / sizeof(float)));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&x, &dy, &y})
        for (float& value : tensor->values()) value = normal(random);

    const dnnl_engine_t engine = context.engine();
    const auto source = layout({batch, in, size, size}, dnnl_nhwc);
    const auto target = layout({batch, out, axis.output, axis.output}, dnnl_nhwc);
    const auto weights = [&](dnnl_format_tag_t dense, dnnl_format_tag_t grouped) {
        return groups == 1 ? layout({out, in, window, window}, dense)
                           : layout({groups, out / groups, in / groups, window, window}, grouped);
    };
    const auto any = weights(dnnl_format_tag_any, dnnl_format_tag_any), plain = weights(dnnl_ohwi, dnnl_gohwi);
    const auto biases = layout({out}, dnnl_a);
    const dnnl_dims_t strides{stride, stride}, dilates{dilation - 1, dilation - 1},
        begin{axis.pad_begin, axis.pad_begin}, end{axis.pad_end, axis.pad_end};
    dnnl_primitive_desc_t forward, gradient, unpack;
    check(dnnl_convolution_forward_primitive_desc_create(&forward, engine, dnnl_forward_training,
                                                         dnnl_convolution_direct, source, any, biases, target, strides,
                                                         dilates, begin, end, nullptr));
    check(dnnl_convolution_backward_weights_primitive_desc_create(&gradient, engine, dnnl_convolution_direct, source,
                                                                  any, biases, target, strides, dilates, begin, end,
                                                                  forward, nullptr));
    const auto* const layout_of_oneDNN = dnnl_primitive_desc_query_md(gradient, dnnl_query_diff_weights_md, 0);
    check(dnnl_reorder_primitive_desc_create(&unpack, layout_of_oneDNN, engine, plain, engine, nullptr));
    Tensor packed(static_cast<std::int64_t>(dnnl_memory_desc_get_size(layout_of_oneDNN) / sizeof(float)));
    Direct direct{.stream = context.stream(), .calls = {}};
    direct.add(gradient, engine,
               {{DNNL_ARG_SRC, source, x.data()},
                {DNNL_ARG_DIFF_DST, target, dy.data()},
                {DNNL_ARG_DIFF_WEIGHTS, layout_of_oneDNN, packed.data()},
                {DNNL_ARG_DIFF_BIAS, biases, direct_bias.data()}});
    direct.add(unpack, engine,
               {{DNNL_ARG_FROM, layout_of_oneDNN, packed.data()}, {DNNL_ARG_TO, plain, direct_weight.data()}});

    const auto run = [&](const float* outputs) {
        if constexpr (std::same_as<Kernel, impl::NarrowWeightGradient>) {
            own.run(context, x.data(), dy.data(), outputs, weight.data(), bias.data(), false, scratch.arena.data());
        } else {
            own.run(context, x.data(), dy.data(), weight.data(), bias.data(), false, scratch.arena.data());
        }
    };
    double own_ms = 1e9, direct_ms = 1e9, loop_ms = 1e9;
    volatile float factor = 0.5F, result = 0;
    for (int round = 0; round <= rounds; ++round) {
        own_ms = std::min(own_ms, milliseconds([&] { run(relu ? y.data() : nullptr); }));
        direct_ms = std::min(direct_ms, milliseconds(direct));
        loop_ms = std::min(loop_ms, milliseconds([&] { result = multiply_add_loop(factor); }));
    }
    run(nullptr);
    const reference::Doubles exact = reference.weight_gradient(dy.values(), x.values());
    const double per_ms = static_cast<double>(loop_steps) * loop_sums * impl::lane_count / loop_ms * context.threads();
    const double products = static_cast<double>(reference.output_size() * window * window * (in / groups));
    std::printf(
        "%3lld: %3lld x %-3lld x %3lld -> %-3lld %lld x %lld / %lld, %lld%10.3f%7.2f%10.3f%7.2f%8.2f%10.1e%10.1e\n",
        static_cast<long long>(batch), static_cast<long long>(size), static_cast<long long>(size),
        static_cast<long long>(in), static_cast<long long>(out), static_cast<long long>(window),
        static_cast<long long>(window), static_cast<long long>(stride), static_cast<long long>(dilation), own_ms,
        products / own_ms / per_ms, direct_ms, products / direct_ms / per_ms, direct_ms / own_ms,
        reference::distance(weight.values(), exact), reference::distance(direct_weight.values(), exact));
    std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 1;
    const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 9;
    const bool relu = count > 3 && std::string_view(words[3]) == "relu";
    HostContext context(0, {.threads = threads});
    const auto team = context.team();
    context.flush_denormals();
    std::printf("%2d threads; batch: image, window / stride, dilation%7s%7s%10s%7s%8s%10s%10s\n", threads, "ms", "loop",
                "oneDNN", "loop", "ratio", "error", "oneDNN's");
    constexpr Case narrow[] = {
        {128, 24, 3, 64, 5},  // the tutorial's
        {128, 32, 3, 16, 3},  // ResNets for CIFAR
        {128, 32, 3, 64, 3}, {128, 28, 1, 32, 5}, {128, 32, 3, 64, 7, 2}, {128, 32, 4, 48, 3, 2},
    };
    for (const Case& c : narrow) compare<impl::NarrowWeightGradient>(context, rounds, relu, c);
    constexpr Case depthwise[] = {
        {8, 56, 96, 96, 7, 1, 1, 96},  // ConvNeXt-Tiny
        {8, 28, 192, 192, 7, 1, 1, 192}, {8, 14, 384, 384, 7, 1, 1, 384},
        {8, 7, 768, 768, 7, 1, 1, 768},  {8, 28, 240, 240, 5, 1, 1, 240},  // EfficientNet-Lite0
        {8, 14, 672, 672, 5, 2, 1, 672}, {8, 28, 192, 192, 3, 1, 2, 192},
        {8, 28, 192, 192, 3, 1, 1, 192},  // MobileNetV2: oneDNN's, in float
    };
    for (const Case& c : depthwise) compare<impl::DepthwiseWeightGradient<float>>(context, rounds, relu, c);
}
