// SPDX-License-Identifier: Apache-2.0
//
// Winograd's convolutions beside oneDNN's direct ones, alternating in one process: forward with bias and ReLU, backward
// data and backward weights, on activations whose weights are packed already; the packing apart. Errors are norms of
// the difference to double over the norm of the result, on the first image (forward, data) or images (weights) of the
// batch.
//
//   winograd [threads] [rounds]      a table, and the same as a line of JSON at the end
#include <random>

#include <oneapi/dnnl/dnnl.h>

#include <cupola/host.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "../reference/convolution.hpp"
#include "../standard.hpp"

using namespace cupola;

namespace {

void check(dnnl_status_t status) {
    if (status == dnnl_success) return;
    std::fprintf(stderr, "winograd: oneDNN failed with status %d\n", static_cast<int>(status));
    std::exit(1);
}

constexpr std::int64_t batch = 128;

/// A primitive of oneDNN's convolution in one direction.
struct Direct {
    dnnl_primitive_t primitive = nullptr;
    std::vector<dnnl_exec_arg_t> arguments;
    dnnl_stream_t stream = nullptr;
    void operator()() const {
        check(dnnl_primitive_execute(primitive, stream, static_cast<int>(arguments.size()), arguments.data()));
        check(dnnl_stream_wait(stream));
    }
};

/// One convolution both ways, with padding SAME: tensors in arenas, as a training has them.
template <std::size_t Tile, std::size_t Kernel>
class Bench {
public:
    Bench(HostContext& context, std::int64_t size, std::int64_t in, std::int64_t out)
        : reference_{batch, reference::same(size, Kernel, 1), reference::same(size, Kernel, 1), in, out},
          context_(&context),
          shape_{window_axis(size, Kernel, 1, Padding::same), window_axis(size, Kernel, 1, Padding::same), in, out,
                 true},
          winograd_({.context = context,
                     .batch = batch,
                     .input = {size, size, in},
                     .output = {size, size, out},
                     .activation = Activation::relu,
                     .relu_mask_applied_by_next = true},
                    shape_) {
        reference::Random random(1);
        // Inputs as a ReLU leaves them, weights of a mean of zero.
        x_ = random.normal(reference_.input_size(), 1.0, 0.5);
        for (float& value : x_) value = std::max(value, 0.0F);
        dy_ = random.normal(reference_.output_size());
        w_ = random.normal(reference_.weight_size(), 0.05);
        b_ = random.normal(out, 0.05);
        const MemoryNeeds needs = winograd_.needs();
        args_.input = put(x_), args_.output = room(dy_.size());
        args_.output_gradient = put(dy_), args_.input_gradient = room(x_.size());
        args_.parameters = {put(w_), put(b_)};
        args_.parameter_gradients = {room(w_.size()), room(b_.size())};
        args_.packed = reinterpret_cast<std::byte*>(room(needs.packed / sizeof(float)));
        args_.scratch = reinterpret_cast<std::byte*>(room(needs.scratch / sizeof(float)));
        make_direct();
    }

    auto& winograd() { return winograd_; }
    const BackwardArgs<Host>& args() { return args_; }
    Direct pack_forward, pack_data, unpack, forward, data, weights;

    /// The errors of the last forward output before its ReLU, input gradient and weight gradient.
    void errors(double (&to)[3]) {
        reference::Convolution first = reference_;
        first.batch = 1;
        const auto part = [](const reference::Floats& v, std::int64_t n) {
            return std::span(v).first(static_cast<std::size_t>(n));
        };
        const auto got = [](const float* v, std::int64_t n) { return std::span(v, static_cast<std::size_t>(n)); };
        reference::Doubles y = first.forward(part(x_, first.input_size()), w_, b_);
        const reference::Doubles before = y;
        for (double& value : y) value = std::max(value, 0.0);
        to[0] = reference::distance_at(before, got(args_.output, first.output_size()), y);
        to[1] = reference::distance(got(args_.input_gradient, first.input_size()),
                                    first.input_gradient(part(dy_, first.output_size()), w_));
        to[2] = reference::distance(got(args_.parameter_gradients[0], first.weight_size()),
                                    reference_.weight_gradient(dy_, x_));
    }

private:
    float* room(std::size_t count) {
        arenas_.emplace_back(aligned(count * sizeof(float)), "the benchmark's tensors");
        std::memset(arenas_.back().data(), 0, arenas_.back().size());
        return reinterpret_cast<float*>(arenas_.back().data());
    }
    float* put(const reference::Floats& values) {
        float* to = room(values.size());
        std::copy(values.begin(), values.end(), to);
        return to;
    }

    struct Memory {
        int argument;
        const_dnnl_memory_desc_t layout;
        const float* at;
    };
    Direct direct(dnnl_status_t status, dnnl_primitive_desc_t description, std::initializer_list<Memory> tensors) {
        check(status);
        Direct result;
        result.stream = context_->stream();
        check(dnnl_primitive_create(&result.primitive, description));
        for (const Memory& m : tensors) {
            dnnl_memory_t memory;
            check(dnnl_memory_create(&memory, m.layout, context_->engine(), const_cast<float*>(m.at)));
            result.arguments.push_back({m.argument, memory});
        }
        return result;
    }
    static dnnl_memory_desc_t layout(std::initializer_list<std::int64_t> dims, dnnl_format_tag_t tag) {
        dnnl_dims_t sizes{};
        std::copy(dims.begin(), dims.end(), sizes);
        dnnl_memory_desc_t result;
        check(dnnl_memory_desc_create_with_tag(&result, static_cast<int>(dims.size()), sizes, dnnl_f32, tag));
        return result;
    }

    void make_direct() {
        const std::int64_t in = shape_.in_channels, out = shape_.out_channels, size = shape_.height.input;
        const std::int64_t k = shape_.height.window;
        const auto source = layout({batch, in, size, size}, dnnl_nhwc),
                   target = layout({batch, out, size, size}, dnnl_nhwc);
        const auto any = layout({out, in, k, k}, dnnl_format_tag_any), plain = layout({out, in, k, k}, dnnl_ohwi);
        const auto bias = layout({out}, dnnl_a);
        const dnnl_dims_t strides{1, 1}, dilates{0, 0}, padding{shape_.height.pad_begin, shape_.width.pad_begin};
        dnnl_post_ops_t after;
        check(dnnl_post_ops_create(&after));
        check(dnnl_post_ops_append_eltwise(after, dnnl_eltwise_relu, 0.0F, 0.0F));
        dnnl_primitive_attr_t relu;
        check(dnnl_primitive_attr_create(&relu));
        check(dnnl_primitive_attr_set_post_ops(relu, after));
        const auto query = [](dnnl_primitive_desc_t d, dnnl_query_t what) {
            return dnnl_primitive_desc_query_md(d, what, 0);
        };
        const auto algorithm = dnnl_convolution_direct;
        const auto engine = context_->engine();
        dnnl_primitive_desc_t d, f, r;
        check(dnnl_convolution_forward_primitive_desc_create(&f, engine, dnnl_forward_training, algorithm, source, any,
                                                             bias, target, strides, dilates, padding, padding, relu));
        const auto* packed = query(f, dnnl_query_weights_md);
        const float* forward_weights = room(dnnl_memory_desc_get_size(packed) / sizeof(float));
        forward = direct(dnnl_success, f,
                         {{DNNL_ARG_SRC, source, args_.input},
                          {DNNL_ARG_WEIGHTS, packed, forward_weights},
                          {DNNL_ARG_BIAS, bias, args_.parameters[1]},
                          {DNNL_ARG_DST, target, args_.output}});
        auto status = dnnl_reorder_primitive_desc_create(&r, plain, engine, packed, engine, nullptr);
        pack_forward =
            direct(status, r, {{DNNL_ARG_FROM, plain, args_.parameters[0]}, {DNNL_ARG_TO, packed, forward_weights}});
        status = dnnl_convolution_backward_data_primitive_desc_create(&d, engine, algorithm, source, any, target,
                                                                      strides, dilates, padding, padding, f, nullptr);
        check(status);
        packed = query(d, dnnl_query_weights_md);
        const float* data_weights = room(dnnl_memory_desc_get_size(packed) / sizeof(float));
        data = direct(status, d,
                      {{DNNL_ARG_DIFF_DST, target, args_.output_gradient},
                       {DNNL_ARG_WEIGHTS, packed, data_weights},
                       {DNNL_ARG_DIFF_SRC, source, args_.input_gradient}});
        status = dnnl_reorder_primitive_desc_create(&r, plain, engine, packed, engine, nullptr);
        pack_data =
            direct(status, r, {{DNNL_ARG_FROM, plain, args_.parameters[0]}, {DNNL_ARG_TO, packed, data_weights}});
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            &d, engine, algorithm, source, any, bias, target, strides, dilates, padding, padding, f, nullptr);
        check(status);
        packed = query(d, dnnl_query_diff_weights_md);
        const float* gradient = room(dnnl_memory_desc_get_size(packed) / sizeof(float));
        weights = direct(status, d,
                         {{DNNL_ARG_SRC, source, args_.input},
                          {DNNL_ARG_DIFF_DST, target, args_.output_gradient},
                          {DNNL_ARG_DIFF_WEIGHTS, packed, gradient},
                          {DNNL_ARG_DIFF_BIAS, bias, args_.parameter_gradients[1]}});
        status = dnnl_reorder_primitive_desc_create(&r, packed, engine, plain, engine, nullptr);
        unpack =
            direct(status, r, {{DNNL_ARG_FROM, packed, gradient}, {DNNL_ARG_TO, plain, args_.parameter_gradients[0]}});
    }

    reference::Convolution reference_;
    HostContext* context_;
    ConvolutionShape shape_;
    ops::WinogradConvolution<Tile, Kernel> winograd_;
    std::vector<HostArena> arenas_;
    reference::Floats x_, dy_, w_, b_;
    BackwardArgs<Host> args_{{.context = *context_}};
};

template <class Function>
double milliseconds(Function f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Prints the table's lines of one convolution and adds them to `json`.
template <std::size_t Tile, std::size_t Kernel>
void compare(const char* name, HostContext& context, int rounds, std::int64_t size, std::int64_t in, std::int64_t out,
             std::string& json) {
    Bench<Tile, Kernel> bench(context, size, in, out);
    auto& ours = bench.winograd();
    const BackwardArgs<Host>& args = bench.args();
    constexpr int directions = 4;
    const char* const names[directions] = {"forward", "data", "weights", "packing"};
    std::vector<double> direct[directions], own[directions];
    for (int round = -1; round < rounds; ++round) {
        const double times[2][directions] = {
            {milliseconds(bench.forward), milliseconds(bench.data), milliseconds(bench.weights),
             milliseconds([&] { bench.pack_forward(), bench.pack_data(), bench.unpack(); })},
            {milliseconds([&] { ours.forward(args); }), milliseconds([&] { ours.backward_data(args); }),
             milliseconds([&] { ours.backward_weights(args); }), milliseconds([&] { ours.prepare(args); })}};
        for (int d = 0; d < directions && round >= 0;
             ++d) {  // the first round is none: code is made, pages are touched
            direct[d].push_back(times[0][d]);
            own[d].push_back(times[1][d]);
        }
    }
    double own_error[3], direct_error[3];
    ours.forward(args), ours.backward_data(args), ours.backward_weights(args);
    bench.errors(own_error);
    bench.forward(), bench.data(), bench.weights(), bench.unpack();
    bench.errors(direct_error);
    for (int d = 0; d < directions; ++d) {
        const double a = median(direct[d]), b = median(own[d]);
        std::printf("%-42s%-10s%12.3f%12.3f%8.2f", d == 0 ? name : "", names[d], a, b, a / b);
        if (d < 3) std::printf("%12.1e%12.1e", direct_error[d], own_error[d]);
        std::printf("\n");
        char line[512];
        std::snprintf(
            line, sizeof line,
            "%s{\"case\": \"%s\", \"tile\": %zu, \"direction\": \"%s\", \"direct_ms\": %.4f, \"winograd_ms\": %.4f, "
            "\"direct_best_ms\": %.4f, \"winograd_best_ms\": %.4f, \"ratio\": %.3f",
            json.back() == '[' ? "" : ", ", name, Tile, names[d], a, b,
            *std::min_element(direct[d].begin(), direct[d].end()), *std::min_element(own[d].begin(), own[d].end()),
            a / b);
        json += line;
        if (d < 3) {
            std::snprintf(line, sizeof line, ", \"direct_error\": %.3g, \"winograd_error\": %.3g", direct_error[d],
                          own_error[d]);
            json += line;
        }
        json += "}";
    }
    std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 2;
    const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 15;
    HostContext context(0, {.threads = threads});
    const auto team = context.team();
    context.flush_denormals();
    std::string json = text("{\"name\": \"winograd\", \"threads\": ", threads, ", \"batch\": ", batch,
                            ", \"rounds\": ", rounds, ", \"cases\": [");
    std::printf("%-52s%12s%12s%8s%12s%12s\n", text("batch ", batch, ", ", threads, " threads, milliseconds").c_str(),
                "oneDNN", "Winograd", "ratio", "its error", "error");
    compare<4, 5>("conv2, 12x12, 64 -> 64, 5x5, tiles of 4x4", context, rounds, 12, 64, 64, json);
    compare<2, 5>("conv2, 12x12, 64 -> 64, 5x5, tiles of 2x2", context, rounds, 12, 64, 64, json);
    compare<4, 3>("ResNet, 32x32, 16 -> 16, 3x3", context, rounds, 32, 16, 16, json);
    compare<4, 3>("ResNet, 16x16, 32 -> 32, 3x3", context, rounds, 16, 32, 32, json);
    compare<4, 3>("ResNet, 8x8, 64 -> 64, 3x3", context, rounds, 8, 64, 64, json);
    std::printf("%s]}\n", json.c_str());
}
