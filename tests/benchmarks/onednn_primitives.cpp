// SPDX-License-Identifier: Apache-2.0
// The oneDNN primitives of one training step of the tutorial's network, each run alone over and over, and a large
// matrix multiplication: what a step costs at least when it is composed of them, and what the processor reaches at
// most. It uses oneDNN's C interface directly and nothing of Cupola. Activations are NHWC, convolutions choose their
// weights' packing.
//
//   onednn_primitives [batch]        each line of standard input is a number of repetitions; each answer a line of JSON
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>

namespace {

void check(dnnl_status_t status, const char* what) {
    if (status == dnnl_success) return;
    std::fprintf(stderr, "onednn_primitives: %s failed: status %d\n", what, static_cast<int>(status));
    std::exit(1);
}

dnnl_engine_t engine;
dnnl_stream_t stream;

// Huge pages, as Cupola's own arenas ask for, so that the comparison is fair. Benchmarks do not free.
void* allocate(std::size_t bytes) {
    constexpr std::size_t huge = std::size_t{1} << 21;
    void* memory = nullptr;
    const std::size_t alignment = bytes >= 4 * huge ? huge : 4096;
    if (posix_memalign(&memory, alignment, (bytes + alignment - 1) / alignment * alignment) != 0) std::abort();
    if (alignment == huge) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

// Each primitive has buffers of its own: no part finds its input in the cache because another has just written it.
dnnl_memory_t tensor(const_dnnl_memory_desc_t layout) {
    const std::size_t bytes = dnnl_memory_desc_get_size(layout);
    auto* values = static_cast<float*>(allocate(bytes + 64));
    std::memset(values, 0, bytes);
    std::uint32_t state = 12345;
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
        state = state * 1664525u + 1013904223u;
        values[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 4e-10F;
    }
    dnnl_memory_t memory;
    check(dnnl_memory_create(&memory, layout, engine, values), "dnnl_memory_create");
    return memory;
}

dnnl_memory_desc_t layout(std::initializer_list<std::int64_t> dims, dnnl_format_tag_t tag) {
    dnnl_dims_t sizes{};
    std::copy(dims.begin(), dims.end(), sizes);
    dnnl_memory_desc_t result;
    check(dnnl_memory_desc_create_with_tag(&result, static_cast<int>(dims.size()), sizes, dnnl_f32, tag), "a layout");
    return result;
}

struct Part {
    std::string name;
    double gflop;  // with the padding taps counted, 0 where it says nothing
    dnnl_primitive_t primitive;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<double> milliseconds;
};
std::vector<Part> parts;

const_dnnl_memory_desc_t query(dnnl_primitive_desc_t description, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(description, what, 0);
}

struct Argument {
    int id;
    dnnl_memory_t memory;
};

void add(const std::string& name, double gflop, dnnl_primitive_desc_t description,
         std::initializer_list<Argument> arguments) {
    const char* implementation = "";
    check(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &implementation), "impl_info");
    if (std::strncmp(implementation, "ref", 3) == 0) {
        std::fprintf(stderr, "onednn_primitives: %s would run by oneDNN's reference code (%s)\n", name.c_str(),
                     implementation);
        std::exit(1);
    }
    Part part{name, gflop, nullptr, {}, {}};
    check(dnnl_primitive_create(&part.primitive, description), "dnnl_primitive_create");
    for (const Argument& a : arguments) part.arguments.push_back({a.id, a.memory});
    if (std::getenv("SHOW_IMPLEMENTATIONS") != nullptr)
        std::fprintf(stderr, "%-36s %s\n", name.c_str(), implementation);
    parts.push_back(part);
}

dnnl_primitive_attr_t relu_after() {
    dnnl_post_ops_t operations;
    check(dnnl_post_ops_create(&operations), "post ops");
    check(dnnl_post_ops_append_eltwise(operations, dnnl_eltwise_relu, 0.0F, 0.0F), "ReLU after");
    dnnl_primitive_attr_t attributes;
    check(dnnl_primitive_attr_create(&attributes), "attributes");
    check(dnnl_primitive_attr_set_post_ops(attributes, operations), "post ops");
    return attributes;
}

void reorder(const std::string& name, const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
    dnnl_primitive_desc_t description;
    check(dnnl_reorder_primitive_desc_create(&description, from, engine, to, engine, nullptr), "reorder");
    add(name, 0, description, {{DNNL_ARG_FROM, tensor(from)}, {DNNL_ARG_TO, tensor(to)}});
}

void convolution(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out,
                 bool input_gradient) {
    const auto source = layout({batch, in, size, size}, dnnl_nhwc),
               target = layout({batch, out, size, size}, dnnl_nhwc);
    const auto packed = layout({out, in, 5, 5}, dnnl_format_tag_any), plain = layout({out, in, 5, 5}, dnnl_ohwi);
    const auto bias = layout({out}, dnnl_a);
    const dnnl_dims_t strides{1, 1}, dilates{0, 0}, padding{2, 2};
    const double gflop = 2e-9 * static_cast<double>(batch * size * size * in * out * 25);
    dnnl_primitive_desc_t forward, weights, data;
    check(dnnl_convolution_forward_primitive_desc_create(&forward, engine, dnnl_forward_training,
                                                         dnnl_convolution_direct, source, packed, bias, target, strides,
                                                         dilates, padding, padding, relu_after()),
          "convolution forward");
    const auto* forward_layout = query(forward, dnnl_query_weights_md);
    add(name + " forward, bias, ReLU", gflop, forward,
        {{DNNL_ARG_SRC, tensor(source)},
         {DNNL_ARG_WEIGHTS, tensor(forward_layout)},
         {DNNL_ARG_BIAS, tensor(bias)},
         {DNNL_ARG_DST, tensor(target)}});
    reorder(name + " pack weights, forward", plain, forward_layout);
    check(dnnl_convolution_backward_weights_primitive_desc_create(&weights, engine, dnnl_convolution_direct, source,
                                                                  packed, bias, target, strides, dilates, padding,
                                                                  padding, forward, nullptr),
          "convolution backward weights");
    const auto* weights_layout = query(weights, dnnl_query_diff_weights_md);
    add(name + " backward weights, bias", gflop, weights,
        {{DNNL_ARG_SRC, tensor(source)},
         {DNNL_ARG_DIFF_DST, tensor(target)},
         {DNNL_ARG_DIFF_WEIGHTS, tensor(weights_layout)},
         {DNNL_ARG_DIFF_BIAS, tensor(bias)}});
    reorder(name + " unpack weight gradients", weights_layout, plain);
    if (!input_gradient) return;
    check(dnnl_convolution_backward_data_primitive_desc_create(&data, engine, dnnl_convolution_direct, source, packed,
                                                               target, strides, dilates, padding, padding, forward,
                                                               nullptr),
          "convolution backward data");
    const auto* data_layout = query(data, dnnl_query_weights_md);
    add(name + " backward data", gflop, data,
        {{DNNL_ARG_DIFF_DST, tensor(target)},
         {DNNL_ARG_WEIGHTS, tensor(data_layout)},
         {DNNL_ARG_DIFF_SRC, tensor(source)}});
    reorder(name + " pack weights, backward", plain, data_layout);
}

// The gradient is masked by the output, in place.
void relu_backward(const std::string& name, std::int64_t elements) {
    const auto vector = layout({elements}, dnnl_a);
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_eltwise_forward_primitive_desc_create(&forward, engine, dnnl_forward_training,
                                                     dnnl_eltwise_relu_use_dst_for_bwd, vector, vector, 0.0F, 0.0F,
                                                     nullptr),
          "ReLU forward");
    check(dnnl_eltwise_backward_primitive_desc_create(&backward, engine, dnnl_eltwise_relu_use_dst_for_bwd, vector,
                                                      vector, vector, 0.0F, 0.0F, forward, nullptr),
          "ReLU backward");
    const auto gradient = tensor(vector);
    add(name, 0, backward,
        {{DNNL_ARG_DST, tensor(vector)}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}});
}

void max_pool(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t channels) {
    const auto source = layout({batch, channels, size, size}, dnnl_nhwc),
               target = layout({batch, channels, size / 2, size / 2}, dnnl_nhwc);
    const dnnl_dims_t kernel{3, 3}, strides{2, 2}, dilates{0, 0}, begin{0, 0}, end{1, 1};
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_pooling_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, dnnl_pooling_max, source,
                                                     target, strides, kernel, dilates, begin, end, nullptr),
          "max-pool forward");
    const auto workspace = tensor(query(forward, dnnl_query_workspace_md));
    add(name + " forward", 0, forward,
        {{DNNL_ARG_SRC, tensor(source)}, {DNNL_ARG_DST, tensor(target)}, {DNNL_ARG_WORKSPACE, workspace}});
    check(dnnl_pooling_backward_primitive_desc_create(&backward, engine, dnnl_pooling_max, source, target, strides,
                                                      kernel, dilates, begin, end, forward, nullptr),
          "max-pool backward");
    add(name + " backward", 0, backward,
        {{DNNL_ARG_DIFF_DST, tensor(target)}, {DNNL_ARG_DIFF_SRC, tensor(source)}, {DNNL_ARG_WORKSPACE, workspace}});
    // A workspace of random bytes would point outside the window, so a true one is written first.
    const Part& part = parts[parts.size() - 2];
    check(
        dnnl_primitive_execute(part.primitive, stream, static_cast<int>(part.arguments.size()), part.arguments.data()),
        "a workspace");
    check(dnnl_stream_wait(stream), "dnnl_stream_wait");
}

void local_response_norm(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t channels) {
    const auto tensor_layout = layout({batch, channels, size, size}, dnnl_nhwc);
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_lrn_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, dnnl_lrn_across_channels,
                                                 tensor_layout, tensor_layout, 9, 0.001F, 0.75F, 1.0F, nullptr),
          "LRN forward");
    const auto* workspace_layout = query(forward, dnnl_query_workspace_md);
    const bool has_workspace = workspace_layout != nullptr && dnnl_memory_desc_get_size(workspace_layout) != 0;
    const auto source = tensor(tensor_layout);
    const auto workspace = has_workspace ? tensor(workspace_layout) : nullptr;
    if (has_workspace) {
        add(name + " forward", 0, forward,
            {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, tensor(tensor_layout)}, {DNNL_ARG_WORKSPACE, workspace}});
    } else {
        add(name + " forward", 0, forward, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, tensor(tensor_layout)}});
    }
    check(
        dnnl_lrn_backward_primitive_desc_create(&backward, engine, dnnl_lrn_across_channels, tensor_layout,
                                                tensor_layout, tensor_layout, 9, 0.001F, 0.75F, 1.0F, forward, nullptr),
        "LRN backward");
    const auto gradient = tensor(tensor_layout), result = tensor(tensor_layout);
    if (has_workspace) {
        add(name + " backward", 0, backward,
            {{DNNL_ARG_SRC, source},
             {DNNL_ARG_DIFF_DST, gradient},
             {DNNL_ARG_DIFF_SRC, result},
             {DNNL_ARG_WORKSPACE, workspace}});
    } else {
        add(name + " backward", 0, backward,
            {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}});
    }
}

// A dense [rows, columns]; transposed, the same memory read the other way.
dnnl_memory_desc_t matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) {
    return transposed ? layout({columns, rows}, dnnl_ba) : layout({rows, columns}, dnnl_ab);
}

void multiply(const std::string& name, dnnl_memory_desc_t a, dnnl_memory_desc_t b, dnnl_memory_desc_t c, double gflop,
              dnnl_memory_desc_t bias = nullptr, bool relu = false) {
    dnnl_primitive_desc_t description;
    check(dnnl_matmul_primitive_desc_create(&description, engine, a, b, bias, c, relu ? relu_after() : nullptr),
          "matmul");
    if (bias != nullptr) {
        add(name, gflop, description,
            {{DNNL_ARG_SRC, tensor(a)},
             {DNNL_ARG_WEIGHTS, tensor(b)},
             {DNNL_ARG_BIAS, tensor(bias)},
             {DNNL_ARG_DST, tensor(c)}});
    } else {
        add(name, gflop, description,
            {{DNNL_ARG_SRC, tensor(a)}, {DNNL_ARG_WEIGHTS, tensor(b)}, {DNNL_ARG_DST, tensor(c)}});
    }
}

// Weights are [out, in], as they lie in Cupola's arena.
void linear(const std::string& name, std::int64_t batch, std::int64_t in, std::int64_t out, bool relu) {
    const double gflop = 2e-9 * static_cast<double>(batch * in * out);
    multiply(name + " forward, bias" + (relu ? ", ReLU" : ""), matrix(batch, in), matrix(out, in, true),
             matrix(batch, out), gflop, layout({1, out}, dnnl_ab), relu);
    multiply(name + " backward data", matrix(batch, out), matrix(out, in), matrix(batch, in), gflop);
    multiply(name + " backward weights", matrix(batch, out, true), matrix(batch, in), matrix(out, in), gflop);
}

double run(const Part& part) {
    const auto start = std::chrono::steady_clock::now();
    check(
        dnnl_primitive_execute(part.primitive, stream, static_cast<int>(part.arguments.size()), part.arguments.data()),
        part.name.c_str());
    check(dnnl_stream_wait(stream), "dnnl_stream_wait");
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double best(const Part& part) { return *std::min_element(part.milliseconds.begin(), part.milliseconds.end()); }

double median(const Part& part) {
    std::vector<double> sorted = part.milliseconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
}

}  // namespace

int main(int count, char** words) {
    const std::int64_t batch = count > 1 ? std::atoll(words[1]) : 128;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "dnnl_engine_create");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "dnnl_stream_create");

    convolution("conv1", batch, 24, 3, 64, false);
    relu_backward("conv1 ReLU backward", batch * 24 * 24 * 64);
    max_pool("pool1", batch, 24, 64);
    local_response_norm("norm1", batch, 12, 64);
    convolution("conv2", batch, 12, 64, 64, true);
    relu_backward("conv2 ReLU backward", batch * 12 * 12 * 64);
    local_response_norm("norm2", batch, 12, 64);
    max_pool("pool2", batch, 12, 64);
    linear("local3", batch, 2304, 384, true);
    relu_backward("local3 ReLU backward", batch * 384);
    linear("local4", batch, 384, 192, true);
    relu_backward("local4 ReLU backward", batch * 192);
    linear("softmax_linear", batch, 192, 10, false);
    const std::size_t of_the_step = parts.size();
    multiply("matmul 2048", matrix(2048, 2048), matrix(2048, 2048), matrix(2048, 2048), 2e-9 * 2048. * 2048. * 2048.);

    for (const Part& part : parts) run(part);  // oneDNN makes its code at the first call of some primitives
    const dnnl_version_t* version = dnnl_version();
    std::printf("{\"name\": \"oneDNN\", \"version\": \"%d.%d.%d\", \"how\": \"primitives alone\", \"threads\": %d}\n",
                version->major, version->minor, version->patch, omp_get_max_threads());
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int repetitions = std::max(1, std::atoi(line));
        for (Part& part : parts) {
            part.milliseconds.clear();
            run(part);
            for (int i = 0; i < repetitions; ++i) part.milliseconds.push_back(run(part));
        }
        double sum_best = 0, sum_median = 0;
        std::printf("{\"parts\": [");
        for (std::size_t i = 0; i < of_the_step; ++i) {
            sum_best += best(parts[i]);
            sum_median += median(parts[i]);
            std::printf("%s{\"name\": \"%s\", \"best\": %.4f, \"median\": %.4f, \"gflop\": %.4f}", i == 0 ? "" : ", ",
                        parts[i].name.c_str(), best(parts[i]), median(parts[i]), parts[i].gflop);
        }
        const Part& large = parts.back();
        std::printf(
            "], \"sum_best\": %.4f, \"sum_median\": %.4f, \"matmul_gflops_best\": %.1f, \"matmul_gflops_median\": "
            "%.1f}\n",
            sum_best, sum_median, large.gflop / best(large) * 1e3, large.gflop / median(large) * 1e3);
        std::fflush(stdout);
    }
}
