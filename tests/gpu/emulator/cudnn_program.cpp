// SPDX-License-Identifier: Apache-2.0
#include "cudnn_program.hpp"
#include "../../standard.hpp"

#include <random>

namespace cupola::emulator {

namespace {

/// The values of a tensor as floats, without gaps. The layout of activations is [n][height][width][c].
using Values = std::vector<float>;

/// Calls f(index in the dense values, index in memory) for each element; the axes of the dense values are `axes` of the
/// tensor, the slowest first.
template <class Function>
void for_each_element(const CudnnTensor& tensor, const std::array<std::size_t, 4>& axes, Function f) {
    std::array<std::int64_t, 4> extents{}, strides{};
    for (std::size_t i = 0; i < 4; ++i) {
        extents[i] = tensor.extents[axes[i]];
        strides[i] = tensor.strides[axes[i]];
    }
    std::size_t dense = 0;
    for (std::int64_t a = 0; a < extents[0]; ++a)
        for (std::int64_t b = 0; b < extents[1]; ++b)
            for (std::int64_t c = 0; c < extents[2]; ++c)
                for (std::int64_t d = 0; d < extents[3]; ++d)
                    f(dense++, a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
}

constexpr std::array<std::size_t, 4> channels_last{0, 2, 3, 1};
/// The axes of weights: height, width, inputs, outputs; and with the last two exchanged.
constexpr std::array<std::size_t, 4> outputs_last{2, 3, 1, 0}, inputs_last{2, 3, 0, 1};

[[nodiscard]] float with_bits_of(float value, CudnnEngineKind::Factors factors) {
    switch (factors) {
        case CudnnEngineKind::Factors::tf32: return rounded_to_tf32(value);
        case CudnnEngineKind::Factors::bfloat16: return rounded_to_bfloat16(value);
        case CudnnEngineKind::Factors::exact: break;
    }
    return value;
}

void gather(const CudnnTensor& tensor, const std::array<std::size_t, 4>& axes, const void* from,
            CudnnEngineKind::Factors factors, float* to) {
    for_each_element(tensor, axes, [&](std::size_t dense, std::int64_t place) {
        to[dense] = with_bits_of(load(from, tensor.kind, place), factors);
    });
}
[[nodiscard]] Values gathered(const CudnnTensor& tensor, const std::array<std::size_t, 4>& axes, const void* from,
                              CudnnEngineKind::Factors factors = CudnnEngineKind::Factors::exact) {
    Values values(static_cast<std::size_t>(tensor.elements()));
    gather(tensor, axes, from, factors, values.data());
    return values;
}

void scatter(const CudnnTensor& tensor, const std::array<std::size_t, 4>& axes, const float* from, void* to) {
    for_each_element(tensor, axes,
                     [&](std::size_t dense, std::int64_t place) { store(to, tensor.kind, place, from[dense]); });
}

/// Bytes of ones are a NaN in every type.
void poison(const CudnnTensor& tensor, void* to) {
    for_each_element(tensor, channels_last, [&](std::size_t, std::int64_t place) {
        std::memset(static_cast<char*>(to) + place * bytes_of(tensor.kind), 0xFF,
                    static_cast<std::size_t>(bytes_of(tensor.kind)));
    });
}

/// The counter of engines whose order of addition changes with each call. Only one piece of work runs at a time: see stream.hpp.
[[nodiscard]] std::mt19937& random_order() {
    static std::mt19937 engine;
    return engine;
}

/// One position of the window.
struct Tap {
    std::int64_t height = 0, width = 0;
};

/// The positions of the window in the order of the engine.
[[nodiscard]] std::vector<Tap> taps_of(const CudnnConvolution& convolution, CudnnEngineKind::Order order) {
    std::vector<Tap> taps;
    for (std::int64_t r = 0; r < convolution.w.extents[2]; ++r)
        for (std::int64_t s = 0; s < convolution.w.extents[3]; ++s) taps.push_back({r, s});
    if (order == CudnnEngineKind::Order::backward) std::ranges::reverse(taps);
    if (order == CudnnEngineKind::Order::random) std::ranges::shuffle(taps, random_order());
    return taps;
}

/// Calls f(pixel of x, pixel of y) for each output of sample n whose window has an input at this position.
template <class Function>
void for_each_pixel(const CudnnConvolution& c, std::int64_t n, const Tap& tap, Function f) {
    const auto place = [&](int axis, std::int64_t tap_place) {
        const std::int64_t window = c.w.extents[static_cast<std::size_t>(axis) + 2];
        const auto i = static_cast<std::size_t>(axis);
        return (c.flipped ? window - 1 - tap_place : tap_place) * c.dilations[i] - c.pads_before[i];
    };
    const std::int64_t down = place(0, tap.height), right = place(1, tap.width);
    const std::int64_t height = c.x.extents[2], width = c.x.extents[3];
    const std::int64_t rows = c.y.extents[2], columns = c.y.extents[3];
    for (std::int64_t p = 0; p < rows; ++p) {
        const std::int64_t h = p * c.strides[0] + down;
        if (h < 0 || h >= height) continue;
        for (std::int64_t q = 0; q < columns; ++q) {
            const std::int64_t w = q * c.strides[1] + right;
            if (w >= 0 && w < width) f((n * height + h) * width + w, (n * rows + p) * columns + q);
        }
    }
}

/// to[j] += sum over i of factors[i] matrix[i][j], for a matrix whose rows are `stride` floats apart
void add_product(float* to, const float* factors, std::int64_t count, const float* matrix, std::int64_t width,
                 std::int64_t stride) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float factor = factors[i];
        const float* const row = matrix + i * stride;
#pragma omp simd  // vectorised at every optimisation level, because an emulated training spends most of its time here
        for (std::int64_t j = 0; j < width; ++j) to[j] += factor * row[j];
    }
}

void shorten(std::span<float> sums) {
    for (float& sum : sums) sum = rounded_to_bfloat16(sum);
}

/// The forward pass, or the gradient of the data: for each position of the window, both multiply the pixels of one tensor
/// by the matrix of that position and add the products to the other tensor, group by group.
[[nodiscard]] Values convolve(const CudnnConvolution& c, const CudnnEngineKind& engine, const Values& from,
                              const float* weights) {
    const bool forward = c.direction == CudnnDirection::forward;
    const std::int64_t inputs = c.x.extents[1], outputs = c.y.extents[1];
    const std::int64_t in = c.w.extents[1], out = outputs / c.groups();  // of a group
    Values to(static_cast<std::size_t>((forward ? c.y : c.x).elements()));
    for (const Tap& tap : taps_of(c, engine.order)) {
        const float* const matrix = weights + (tap.height * c.w.extents[3] + tap.width) * in * outputs;
        for (std::int64_t n = 0; n < c.x.extents[0]; ++n) {
            for_each_pixel(c, n, tap, [&](std::int64_t of_x, std::int64_t of_y) {
                for (std::int64_t group = 0; group < c.groups(); ++group) {
                    const auto in_x = static_cast<std::size_t>(of_x * inputs + group * in),
                               in_y = static_cast<std::size_t>(of_y * outputs + group * out);
                    if (forward) {
                        add_product(&to[in_y], &from[in_x], in, matrix + group * out, out, outputs);
                    } else {
                        add_product(&to[in_x], &from[in_y], out, matrix + group * out * in, in, in);
                    }
                }
            });
        }
        if (engine.short_sums) shorten(to);
    }
    return to;
}

/// The gradient of the weights: the products of the pixels of x and y, added sample by sample.
void weight_gradient(const CudnnConvolution& c, const CudnnEngineKind& engine, const Values& x, const Values& y,
                     std::span<float> to) {
    const std::int64_t inputs = c.x.extents[1], outputs = c.y.extents[1];
    const std::int64_t in = c.w.extents[1], out = outputs / c.groups();  // of a group
    const auto matrix_size = static_cast<std::size_t>(in * outputs);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(c.x.extents[0]));
    std::iota(samples.begin(), samples.end(), std::int64_t{0});
    if (engine.order == CudnnEngineKind::Order::backward) std::ranges::reverse(samples);
    if (engine.order == CudnnEngineKind::Order::random) std::ranges::shuffle(samples, random_order());
    std::ranges::fill(to, 0.0F);
    Values of_sample(matrix_size);
    for (const Tap& tap : taps_of(c, engine.order)) {
        const auto matrix = static_cast<std::size_t>(tap.height * c.w.extents[3] + tap.width);
        const std::span<float> sums = to.subspan(matrix * matrix_size, matrix_size);
        for (const std::int64_t n : samples) {
            std::ranges::fill(of_sample, 0.0F);
            for_each_pixel(c, n, tap, [&](std::int64_t of_x, std::int64_t of_y) {
                for (std::int64_t k = 0; k < inputs; ++k) {
                    const std::int64_t first = k / in * out;  // the outputs of the input's group
                    add_product(&of_sample[static_cast<std::size_t>(k % in * outputs + first)],
                                &x[static_cast<std::size_t>(of_x * inputs + k)], 1,
                                &y[static_cast<std::size_t>(of_y * outputs + first)], out, outputs);
                }
            });
            for (std::size_t j = 0; j < matrix_size; ++j) sums[j] += of_sample[j];
            if (engine.short_sums) shorten(sums);
        }
    }
}

/// Stores the values in the type of the tensor.
void round_to(ElementKind kind, Values& values) {
    if (kind == ElementKind::float32) return;
    for (float& value : values) {
        char element[4] = {};
        store(element, kind, 0, value);
        value = load(element, kind, 0);
    }
}

/// Both tensors have channels last; an extent 1 of b is broadcast.
void apply(const CudnnPointwise& operation, const Values& b, Values& values) {
    const Extents& shape = operation.y.extents;
    const Extents& of_b = operation.b.extents;
    std::size_t at = 0;
    for (std::int64_t n = 0; n < shape[0]; ++n)
        for (std::int64_t h = 0; h < shape[2]; ++h)
            for (std::int64_t w = 0; w < shape[3]; ++w)
                for (std::int64_t c = 0; c < shape[1]; ++c) {
                    float& value = values[at++];
                    if (!operation.binary) {
                        value = value > 0.0F ? value : 0.0F;  // a NaN becomes 0: the default of cuDNN's ReLU
                        continue;
                    }
                    const auto within = [](std::int64_t i, std::int64_t extent) { return extent == 1 ? 0 : i; };
                    const std::int64_t place =
                        ((within(n, of_b[0]) * of_b[2] + within(h, of_b[2])) * of_b[3] + within(w, of_b[3])) * of_b[1] +
                        within(c, of_b[1]);
                    const float other = b[static_cast<std::size_t>(place)];
                    value = operation.mode == CUDNN_POINTWISE_MUL ? value * other : value + other;
                }
}

}  // namespace

std::string CudnnProgram::name() const {
    const auto sizes = [](const CudnnTensor& tensor) {
        return std::to_string(tensor.extents[2]) + " x " + std::to_string(tensor.extents[3]) + " x " +
               std::to_string(tensor.extents[1]);
    };
    const char* const direction = convolution.direction == CudnnDirection::forward         ? "forward"
                                  : convolution.direction == CudnnDirection::backward_data ? "input gradient"
                                                                                           : "weight gradient";
    return std::string("convolution ") + direction + ", " + sizes(convolution.x) + " to " + sizes(convolution.y) +
           " by " + std::to_string(convolution.w.extents[2]) + " x " + std::to_string(convolution.w.extents[3]);
}

LibraryCost CudnnProgram::cost() const {
    LibraryCost cost;
    const std::vector<const CudnnTensor*> tensors = memory_tensors();
    for (const CudnnTensor* tensor : tensors)
        (tensor == tensors.back() ? cost.bytes_written : cost.bytes_read) +=
            tensor->elements() * bytes_of(tensor->kind);
    const auto& window = convolution.w.extents;
    cost.operations = 2 * convolution.y.elements() * window[1] * window[2] * window[3];
    return cost;
}

std::int64_t CudnnProgram::workspace_bytes() const {
    constexpr std::int64_t unit = 128;
    const std::int64_t used =
        engine.uses_workspace ? convolution.w.elements() * static_cast<std::int64_t>(sizeof(float)) : 0;
    return (used + unit - 1) / unit * unit + engine.more_workspace;
}

std::vector<const CudnnTensor*> CudnnProgram::memory_tensors() const {
    const CudnnConvolution& c = convolution;
    std::vector<const CudnnTensor*> result;
    for (const CudnnTensor* tensor : {&c.x, &c.w, &c.y}) {
        if (tensor != &c.result()) result.push_back(tensor);
    }
    for (const CudnnPointwise& operation : after) {
        if (operation.binary) result.push_back(&operation.b);
    }
    result.push_back(after.empty() ? &c.result() : &after.back().y);
    return result;
}

void CudnnProgram::run(const std::vector<void*>& pointers, std::byte* workspace) const {
    const CudnnConvolution& c = convolution;
    const auto factors = engine.factors;
    const std::vector<const CudnnTensor*> tensors = memory_tensors();
    const auto pointer_of = [&](const CudnnTensor& wanted) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (tensors[i]->id == wanted.id) return pointers[i];
        }
        return static_cast<void*>(nullptr);
    };
    void* const to = pointers.back();
    const bool reads_result = after.empty() && c.beta != 0;
    const bool weights_are_result = c.direction == CudnnDirection::backward_filter;
    const auto& axes = weights_are_result ? outputs_last : channels_last;

    // The contents of the workspace, and of the result before it is written, are undefined: both are poisoned.
    const auto poison_workspace = [&] {
        if (workspace != nullptr) std::memset(workspace, 0xFF, static_cast<std::size_t>(workspace_bytes()));
    };
    poison_workspace();
    const Values before = reads_result ? gathered(c.result(), axes, to) : Values();
    if (!reads_result) poison(*tensors.back(), to);

    // The weights or their gradient as floats, in the workspace if the engine has one.
    const auto weights_size = static_cast<std::size_t>(c.w.elements());
    Values own(engine.uses_workspace ? 0 : weights_size);
    float* const weights = engine.uses_workspace ? reinterpret_cast<float*>(workspace) : own.data();
    Values values;
    if (weights_are_result) {
        weight_gradient(c, engine, gathered(c.x, channels_last, pointer_of(c.x), factors),
                        gathered(c.y, channels_last, pointer_of(c.y), factors), {weights, weights_size});
        values.assign(weights, weights + weights_size);
    } else {
        const bool forward = c.direction == CudnnDirection::forward;
        gather(c.w, forward ? outputs_last : inputs_last, pointer_of(c.w), factors, weights);
        const CudnnTensor& from = forward ? c.x : c.y;
        values = convolve(c, engine, gathered(from, channels_last, pointer_of(from), factors), weights);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] *= c.alpha;
        if (reads_result) values[i] += c.beta * before[i];
    }
    for (std::size_t i = 0; i < after.size(); ++i) {
        round_to(after[i].x.kind, values);
        apply(after[i], after[i].binary ? gathered(after[i].b, channels_last, pointer_of(after[i].b)) : Values(),
              values);
    }
    scatter(*tensors.back(), axes, values.data(), to);
    poison_workspace();
}

}  // namespace cupola::emulator
