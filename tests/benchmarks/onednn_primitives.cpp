// SPDX-License-Identifier: Apache-2.0
//
// The oneDNN primitives of one training step of a network, each run alone over and over, and a large matrix
// multiplication: what a step costs at least when it is composed of them, and what the processor reaches at most. It
// uses oneDNN's C interface directly and nothing of Cupola. Activations are NHWC, convolutions choose their weights'
// packing.
//
//   onednn_primitives [[threads] batch] [lrn|plain|resnet44|mlp|resnet50|resnet50-frozen] [float|bfloat16]
//
// In bfloat16, activations and their gradients are of that type; parameters, their gradients, statistics and the loss
// are float, so that the weights of linear layers are rounded once per step. The large product is of that type too.
//
// Each line of standard input is a number of repetitions; each answer a line of JSON. Primitives that a network has
// several times are run once and counted as often as it has them.
#include <cctype>

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>

#include "../standard.hpp"

namespace {

void check(dnnl_status_t status, const char* what) {
    if (status == dnnl_success) return;
    std::fprintf(stderr, "onednn_primitives: %s failed: status %d\n", what, static_cast<int>(status));
    std::exit(1);
}

dnnl_engine_t engine;
dnnl_stream_t stream;
dnnl_data_type_t element = dnnl_f32;  // of activations

// Huge pages, as in Cupola's arenas, so that the comparison is fair. The memory is never freed.
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
    auto* values = static_cast<unsigned char*>(allocate(bytes + 64));
    std::memset(values, 0, bytes);
    dnnl_data_type_t type = dnnl_data_type_undef;
    check(dnnl_memory_desc_query(layout, dnnl_query_data_type, &type), "a layout's type");
    const std::size_t width = type == dnnl_bf16 ? 2 : 4;  // a bfloat16 is the upper half of a float
    std::uint32_t state = 12345;
    for (std::size_t i = 0; i + width <= bytes; i += width) {
        state = state * 1664525u + 1013904223u;
        const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 4e-10F;
        std::memcpy(values + i, reinterpret_cast<const unsigned char*>(&value) + 4 - width, width);
    }
    dnnl_memory_t memory;
    check(dnnl_memory_create(&memory, layout, engine, values), "dnnl_memory_create");
    return memory;
}

dnnl_memory_desc_t layout(std::initializer_list<std::int64_t> dims, dnnl_format_tag_t tag,
                          dnnl_data_type_t type = dnnl_f32) {
    dnnl_dims_t sizes{};
    std::copy(dims.begin(), dims.end(), sizes);
    dnnl_memory_desc_t result;
    check(dnnl_memory_desc_create_with_tag(&result, static_cast<int>(dims.size()), sizes, type, tag), "a layout");
    return result;
}

struct Part {
    std::string name;
    double gflop;  // with the padding taps counted, 0 where it says nothing
    int count;     // in a step
    bool beside;   // of the loss, the update and the linear layers' biases
    dnnl_primitive_t primitive;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<double> milliseconds;
};
std::vector<Part> parts;
int times = 1;             // the count of the parts that are added
bool beside_them = false;  // and whether they are beside the layers

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
    Part part{name, gflop, times, beside_them, nullptr, {}, {}};
    check(dnnl_primitive_create(&part.primitive, description), "dnnl_primitive_create");
    for (const Argument& a : arguments) {
        if (a.memory != nullptr) part.arguments.push_back({a.id, a.memory});
    }
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

struct Convolution {
    std::int64_t size, in, out;
    std::int64_t kernel = 5, stride = 1;
    bool input_gradient = true;
    bool bias_and_relu = true;
    bool backward = true;
};

void convolution(const std::string& name, std::int64_t batch, const Convolution& c) {
    const std::int64_t in = c.in, out = c.out, size = c.size, k = c.kernel, to = size / c.stride;
    const auto source = layout({batch, in, size, size}, dnnl_nhwc, element),
               target = layout({batch, out, to, to}, dnnl_nhwc, element);
    const auto packed = layout({out, in, k, k}, dnnl_format_tag_any, element),
               plain = layout({out, in, k, k}, dnnl_ohwi), packed_sums = layout({out, in, k, k}, dnnl_format_tag_any);
    const dnnl_memory_desc_t bias = c.bias_and_relu ? layout({out}, dnnl_a) : nullptr;
    const dnnl_dims_t strides{c.stride, c.stride}, dilates{0, 0}, padding{k / 2, k / 2};
    const double gflop = 2e-9 * static_cast<double>(batch * to * to * in * out * k * k);
    dnnl_primitive_desc_t forward, weights, data;
    check(dnnl_convolution_forward_primitive_desc_create(
              &forward, engine, dnnl_forward_training, dnnl_convolution_direct, source, packed, bias, target, strides,
              dilates, padding, padding, c.bias_and_relu ? relu_after() : nullptr),
          "convolution forward");
    const auto* forward_layout = query(forward, dnnl_query_weights_md);
    add(name + (c.bias_and_relu ? " forward, bias, ReLU" : " forward"), gflop, forward,
        {{DNNL_ARG_SRC, tensor(source)},
         {DNNL_ARG_WEIGHTS, tensor(forward_layout)},
         {DNNL_ARG_DST, tensor(target)},
         {DNNL_ARG_BIAS, c.bias_and_relu ? tensor(bias) : nullptr}});
    if (!c.backward) return;  // such weights are packed once
    reorder(name + " pack weights, forward", plain, forward_layout);
    check(dnnl_convolution_backward_weights_primitive_desc_create(&weights, engine, dnnl_convolution_direct, source,
                                                                  packed_sums, bias, target, strides, dilates, padding,
                                                                  padding, forward, nullptr),
          "convolution backward weights");
    const auto* weights_layout = query(weights, dnnl_query_diff_weights_md);
    add(name + (c.bias_and_relu ? " backward weights, bias" : " backward weights"), gflop, weights,
        {{DNNL_ARG_SRC, tensor(source)},
         {DNNL_ARG_DIFF_DST, tensor(target)},
         {DNNL_ARG_DIFF_WEIGHTS, tensor(weights_layout)},
         {DNNL_ARG_DIFF_BIAS, c.bias_and_relu ? tensor(bias) : nullptr}});
    reorder(name + " unpack weight gradients", weights_layout, plain);
    if (!c.input_gradient) return;
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
    const auto vector = layout({elements}, dnnl_a, element);
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

// Backward reads results of forward: a workspace of random bytes would point outside a window, and a variance could be negative.
void run_last() {
    const Part& part = parts.back();
    check(
        dnnl_primitive_execute(part.primitive, stream, static_cast<int>(part.arguments.size()), part.arguments.data()),
        part.name.c_str());
    check(dnnl_stream_wait(stream), "dnnl_stream_wait");
}

void max_pool(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t channels) {
    const auto source = layout({batch, channels, size, size}, dnnl_nhwc, element),
               target = layout({batch, channels, size / 2, size / 2}, dnnl_nhwc, element);
    const dnnl_dims_t kernel{3, 3}, strides{2, 2}, dilates{0, 0}, begin{0, 0}, end{1, 1};
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_pooling_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, dnnl_pooling_max, source,
                                                     target, strides, kernel, dilates, begin, end, nullptr),
          "max-pool forward");
    const auto workspace = tensor(query(forward, dnnl_query_workspace_md));
    add(name + " forward", 0, forward,
        {{DNNL_ARG_SRC, tensor(source)}, {DNNL_ARG_DST, tensor(target)}, {DNNL_ARG_WORKSPACE, workspace}});
    run_last();
    check(dnnl_pooling_backward_primitive_desc_create(&backward, engine, dnnl_pooling_max, source, target, strides,
                                                      kernel, dilates, begin, end, forward, nullptr),
          "max-pool backward");
    add(name + " backward", 0, backward,
        {{DNNL_ARG_DIFF_DST, tensor(target)}, {DNNL_ARG_DIFF_SRC, tensor(source)}, {DNNL_ARG_WORKSPACE, workspace}});
}

// Windows that do not overlap.
void average_pool(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t window,
                  std::int64_t channels) {
    const auto source = layout({batch, channels, size, size}, dnnl_nhwc, element),
               target = layout({batch, channels, size / window, size / window}, dnnl_nhwc, element);
    const dnnl_dims_t kernel{window, window}, dilates{0, 0}, none{0, 0};
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_pooling_forward_primitive_desc_create(&forward, engine, dnnl_forward_training,
                                                     dnnl_pooling_avg_exclude_padding, source, target, kernel, kernel,
                                                     dilates, none, none, nullptr),
          "average pool forward");
    add(name + " forward", 0, forward, {{DNNL_ARG_SRC, tensor(source)}, {DNNL_ARG_DST, tensor(target)}});
    check(dnnl_pooling_backward_primitive_desc_create(&backward, engine, dnnl_pooling_avg_exclude_padding, source,
                                                      target, kernel, kernel, dilates, none, none, forward, nullptr),
          "average pool backward");
    add(name + " backward", 0, backward, {{DNNL_ARG_DIFF_DST, tensor(target)}, {DNNL_ARG_DIFF_SRC, tensor(source)}});
}

void batch_norm(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t channels, bool relu) {
    const auto values = layout({batch, channels, size, size}, dnnl_nhwc, element), row = layout({channels}, dnnl_a);
    const unsigned flags = dnnl_use_scale | dnnl_use_shift | (relu ? static_cast<unsigned>(dnnl_fuse_norm_relu) : 0U);
    dnnl_primitive_desc_t forward, backward;
    check(dnnl_batch_normalization_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, values,
                                                                 values, 1e-5F, flags, nullptr),
          "batch normalisation forward");
    const auto source = tensor(values), mean = tensor(row), variance = tensor(row), scale = tensor(row);
    const auto workspace = relu ? tensor(query(forward, dnnl_query_workspace_md)) : nullptr;
    add(name + (relu ? " forward, ReLU" : " forward"), 0, forward,
        {{DNNL_ARG_SRC, source},
         {DNNL_ARG_MEAN, mean},
         {DNNL_ARG_VARIANCE, variance},
         {DNNL_ARG_SCALE, scale},
         {DNNL_ARG_SHIFT, tensor(row)},
         {DNNL_ARG_DST, tensor(values)},
         {DNNL_ARG_WORKSPACE, workspace}});
    run_last();
    check(dnnl_batch_normalization_backward_primitive_desc_create(&backward, engine, dnnl_backward, values, values,
                                                                  values, 1e-5F, flags, forward, nullptr),
          "batch normalisation backward");
    add(name + (relu ? " backward, ReLU" : " backward"), 0, backward,
        {{DNNL_ARG_SRC, source},
         {DNNL_ARG_MEAN, mean},
         {DNNL_ARG_VARIANCE, variance},
         {DNNL_ARG_SCALE, scale},
         {DNNL_ARG_DIFF_DST, tensor(values)},
         {DNNL_ARG_DIFF_SRC, tensor(values)},
         {DNNL_ARG_DIFF_SCALE, tensor(row)},
         {DNNL_ARG_DIFF_SHIFT, tensor(row)},
         {DNNL_ARG_WORKSPACE, workspace}});
}

void sum(const std::string& name, std::int64_t elements, bool relu) {
    const auto vector = layout({1, elements}, dnnl_ab, element);
    dnnl_primitive_desc_t description;
    check(dnnl_binary_primitive_desc_create(&description, engine, dnnl_binary_add, vector, vector, vector,
                                            relu ? relu_after() : nullptr),
          "a sum");
    add(name + (relu ? ", ReLU" : ""), 0, description,
        {{DNNL_ARG_SRC_0, tensor(vector)}, {DNNL_ARG_SRC_1, tensor(vector)}, {DNNL_ARG_DST, tensor(vector)}});
}

void local_response_norm(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t channels) {
    const auto tensor_layout = layout({batch, channels, size, size}, dnnl_nhwc, element);
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
    return transposed ? layout({columns, rows}, dnnl_ba, element) : layout({rows, columns}, dnnl_ab, element);
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
void linear(const std::string& name, std::int64_t batch, std::int64_t in, std::int64_t out, bool relu,
            bool input_gradient = true) {
    const double gflop = 2e-9 * static_cast<double>(batch * in * out);
    multiply(name + " forward, bias" + (relu ? ", ReLU" : ""), matrix(batch, in), matrix(out, in, true),
             matrix(batch, out), gflop, layout({1, out}, dnnl_ab), relu);
    if (input_gradient)
        multiply(name + " backward data", matrix(batch, out), matrix(out, in), matrix(batch, in), gflop);
    multiply(name + " backward weights", matrix(batch, out, true), matrix(batch, in), layout({out, in}, dnnl_ab),
             gflop);
    if (element != dnnl_f32) reorder(name + " round weights", layout({out, in}, dnnl_ab), matrix(out, in));
    beside_them = true;
    multiply(name + " backward bias", matrix(1, batch), matrix(batch, out), layout({1, out}, dnnl_ab), 0);
    beside_them = false;
}

// In float: the logarithm of softmax and its gradient, and an update of the parameters in place.
void loss_and_update(std::int64_t batch, std::int64_t classes, std::int64_t parameters) {
    beside_them = true;
    const auto logits = layout({batch, classes}, dnnl_ab);
    dnnl_primitive_desc_t forward, backward, update;
    check(dnnl_softmax_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, dnnl_softmax_log, logits,
                                                     logits, 1, nullptr),
          "softmax forward");
    const auto result = tensor(logits);
    add("loss forward", 0, forward, {{DNNL_ARG_SRC, tensor(logits)}, {DNNL_ARG_DST, result}});
    check(dnnl_softmax_backward_primitive_desc_create(&backward, engine, dnnl_softmax_log, logits, logits, logits, 1,
                                                      forward, nullptr),
          "softmax backward");
    add("loss backward", 0, backward,
        {{DNNL_ARG_DST, result}, {DNNL_ARG_DIFF_DST, tensor(logits)}, {DNNL_ARG_DIFF_SRC, tensor(logits)}});
    const dnnl_memory_desc_t vector = layout({parameters}, dnnl_a);
    const const_dnnl_memory_desc_t both[] = {vector, vector};
    const float scales[] = {1.0F, -0.01F};
    check(dnnl_sum_primitive_desc_create(&update, engine, vector, 2, scales, both, nullptr), "update");
    const auto weights = tensor(vector);
    add("update", 0, update,
        {{DNNL_ARG_MULTIPLE_SRC, weights}, {DNNL_ARG_MULTIPLE_SRC + 1, tensor(vector)}, {DNNL_ARG_DST, weights}});
    beside_them = false;
}

void tutorial(std::int64_t batch, bool norm) {
    convolution("conv1", batch, {.size = 24, .in = 3, .out = 64, .input_gradient = false});
    relu_backward("conv1 ReLU backward", batch * 24 * 24 * 64);
    max_pool("pool1", batch, 24, 64);
    if (norm) local_response_norm("norm1", batch, 12, 64);
    convolution("conv2", batch, {.size = 12, .in = 64, .out = 64});
    relu_backward("conv2 ReLU backward", batch * 12 * 12 * 64);
    if (norm) local_response_norm("norm2", batch, 12, 64);
    max_pool("pool2", batch, 12, 64);
    linear("local3", batch, 2304, 384, true);
    relu_backward("local3 ReLU backward", batch * 384);
    linear("local4", batch, 384, 192, true);
    relu_backward("local4 ReLU backward", batch * 192);
    linear("softmax_linear", batch, 192, 10, false);
    loss_and_update(batch, 10, 1'068'298);
}

// The channels of zeros of the two smaller shortcuts are left out.
void resnet44(std::int64_t batch) {
    constexpr int blocks = 7;
    convolution("conv1", batch,
                {.size = 32, .in = 3, .out = 16, .kernel = 3, .input_gradient = false, .bias_and_relu = false});
    batch_norm("bn1", batch, 32, 16, true);
    for (int stage = 1; stage <= 3; ++stage) {
        const std::int64_t size = 64 >> stage, channels = 8 << stage, elements = batch * size * size * channels;
        const std::string name = "layer" + std::to_string(stage);
        times = stage == 1 ? 2 * blocks : 2 * blocks - 1;
        convolution(name + " conv", batch,
                    {.size = size, .in = channels, .out = channels, .kernel = 3, .bias_and_relu = false});
        times = blocks;
        batch_norm(name + " bn1", batch, size, channels, true);
        batch_norm(name + " bn2", batch, size, channels, false);
        sum(name + " sum", elements, true);
        relu_backward(name + " sum ReLU backward", elements);
        sum(name + " sum of gradients", elements, false);
        times = 1;
        if (stage == 3) break;
        convolution(
            name + " conv to the next", batch,
            {.size = size, .in = channels, .out = 2 * channels, .kernel = 3, .stride = 2, .bias_and_relu = false});
        average_pool(name + " shortcut to the next", batch, size, 2, channels);
    }
    average_pool("mean", batch, 8, 8, 64);
    linear("fc", batch, 64, 11, false);
    loss_and_update(batch, 11, 658'651);
}

// A convolution of torchvision's ResNet-50 with its batch normalisation; that of a frozen one is in its weights.
void normed(const std::string& name, std::int64_t batch, Convolution c, bool frozen, bool relu) {
    c.bias_and_relu = frozen;
    c.backward = !frozen;
    convolution(name, batch, c);
    if (!frozen) batch_norm(name + " norm", batch, c.size / c.stride, c.out, relu);
}

// A stage of ResNet-50: `size` is that of its input, the stride that of its first 3 x 3 convolution.
void bottlenecks(const std::string& name, std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t width,
                 int blocks, std::int64_t stride, bool frozen) {
    const std::int64_t to = size / stride, out = 4 * width, elements = batch * to * to * out;
    normed(name + " first conv1", batch, {.size = size, .in = in, .out = width, .kernel = 1}, frozen, true);
    normed(name + " first conv2", batch, {.size = size, .in = width, .out = width, .kernel = 3, .stride = stride},
           frozen, true);
    normed(name + " shortcut", batch, {.size = size, .in = in, .out = out, .kernel = 1, .stride = stride}, frozen,
           false);
    times = blocks - 1;
    normed(name + " conv1", batch, {.size = to, .in = out, .out = width, .kernel = 1}, frozen, true);
    normed(name + " conv2", batch, {.size = to, .in = width, .out = width, .kernel = 3}, frozen, true);
    times = blocks;
    normed(name + " conv3", batch, {.size = to, .in = width, .out = out, .kernel = 1}, frozen, false);
    sum(name + " sum", elements, true);
    if (!frozen) {
        relu_backward(name + " sum ReLU backward", elements);
        sum(name + " sum of gradients", elements, false);
    }
    times = 1;
}

void resnet50(std::int64_t batch, bool frozen) {
    normed("conv1", batch, {.size = 224, .in = 3, .out = 64, .kernel = 7, .stride = 2, .input_gradient = false}, frozen,
           true);
    max_pool("maxpool", batch, 112, 64);
    if (frozen) parts.pop_back();
    bottlenecks("layer1", batch, 56, 64, 64, 3, 1, frozen);
    bottlenecks("layer2", batch, 56, 256, 128, 4, 2, frozen);
    bottlenecks("layer3", batch, 28, 512, 256, 6, 2, frozen);
    bottlenecks("layer4", batch, 14, 1024, 512, 3, 2, frozen);
    average_pool("mean", batch, 7, 7, 2048);
    if (frozen) parts.pop_back();
    linear("fc", batch, 2048, 1000, false, !frozen);
    loss_and_update(batch, 1000, frozen ? 2'049'000 : 25'557'032);
}

void mlp(std::int64_t batch) {
    linear("hidden", batch, 784, 128, true, false);
    relu_backward("hidden ReLU backward", batch * 128);
    linear("logits", batch, 128, 10, false);
    loss_and_update(batch, 10, 101'770);
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
    std::int64_t batch = 128;
    std::string network = "lrn", precision = "float";
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
            if (i == 2) omp_set_num_threads(static_cast<int>(batch));  // of two numbers the first
            batch = std::atoll(words[i]);
        } else {
            (word.find("float") == std::string::npos ? network : precision) = word;
        }
    }
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "dnnl_engine_create");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "dnnl_stream_create");

    if (precision == "bfloat16") {
        element = dnnl_bf16;
    } else if (precision != "float" && precision != "float32") {
        std::fprintf(stderr, "onednn_primitives: there is no list of primitives in %s\n", precision.c_str());
        return 2;
    }
    if (network == "resnet44") {
        resnet44(batch);
    } else if (network == "resnet50" || network == "resnet50-frozen") {
        resnet50(batch, network != "resnet50");
    } else if (network == "mlp") {
        mlp(batch);
    } else if (network == "lrn" || network == "plain") {
        tutorial(batch, network == "lrn");
    } else {
        std::fprintf(stderr, "onednn_primitives: there is no list of primitives of %s\n", network.c_str());
        return 2;
    }
    const std::size_t of_the_step = parts.size();
    multiply("matmul 2048", matrix(2048, 2048), matrix(2048, 2048), matrix(2048, 2048), 2e-9 * 2048. * 2048. * 2048.);

    for (const Part& part : parts) run(part);  // oneDNN makes its code at the first call of some primitives
    const dnnl_version_t* version = dnnl_version();
    std::printf(
        "{\"name\": \"oneDNN\", \"version\": \"%d.%d.%d\", \"how\": \"primitives alone\", \"threads\": %d, "
        "\"precision\": \"%s\"}\n",
        version->major, version->minor, version->patch, omp_get_max_threads(),
        element == dnnl_bf16 ? "bfloat16" : "float32");
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int repetitions = std::max(1, std::atoi(line));
        for (Part& part : parts) {
            part.milliseconds.clear();
            run(part);
            for (int i = 0; i < repetitions; ++i) part.milliseconds.push_back(run(part));
        }
        double sum_best = 0, sum_median = 0, sum_layers = 0, pass = 0;
        std::printf("{\"parts\": [");
        for (std::size_t i = 0; i < of_the_step; ++i) {
            const Part& part = parts[i];
            sum_best += part.count * best(part);
            sum_median += part.count * median(part);
            if (!part.beside) sum_layers += part.count * median(part);
            std::printf("%s{\"name\": \"%s\", \"count\": %d, \"best\": %.4f, \"median\": %.4f, \"gflop\": %.4f}",
                        i == 0 ? "" : ", ", part.name.c_str(), part.count, best(part), median(part), part.gflop);
        }
        for (const Part& part : parts) pass += median(part);
        const Part& large = parts.back();
        std::printf(
            "], \"sum_best\": %.4f, \"sum_median\": %.4f, \"sum_layers\": %.4f, \"pass_median\": %.4f, "
            "\"matmul_gflops_best\": %.1f, \"matmul_gflops_median\": %.1f}\n",
            sum_best, sum_median, sum_layers, pass, large.gflop / best(large) * 1e3, large.gflop / median(large) * 1e3);
        std::fflush(stdout);
    }
}
