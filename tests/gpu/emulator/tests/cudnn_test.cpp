// SPDX-License-Identifier: Apache-2.0
//
// Compares the stand-in for cuDNN with plain loops in double, for each direction, element type and engine, with strides of
// several kinds; and checks what it rejects when a plan runs.
#include "../../../test.hpp"

#include <cudnn_backend.h>

#include "../../../reference/convolution.hpp"
#include "../../../reference/relu.hpp"
#include "../../cudnn_descriptor.hpp"
#include "../control.hpp"
#include "../cudnn_engines.hpp"
#include "device_memory.hpp"

using cudnn_test::Descriptor;
using namespace emulator_tests;
using reference::Floats;
namespace emulator = cupola::emulator;

namespace {

using Four = std::array<std::int64_t, 4>;
using Two = std::array<std::int64_t, 2>;

void good(cudnnStatus_t status) {
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    INFO(std::string(words));
    REQUIRE(status == CUDNN_STATUS_SUCCESS);
}

struct Kind {
    cudnnDataType_t type;
    cudaDataType element;
    const char* name;
};
constexpr Kind float32{CUDNN_DATA_FLOAT, CUDA_R_32F, "float"}, bfloat16{CUDNN_DATA_BFLOAT16, CUDA_R_16BF, "bfloat16"},
    float16{CUDNN_DATA_HALF, CUDA_R_16F, "half"};

/// The order of a tensor's axes in memory, and the gaps between its elements.
enum class Layout { channels_last, channels_first, gaps };

/// The extents are {n, c, h, w} or {out, in, h, w}; the values have the order of the reference, [n][h][w][c].
class Tensor {
public:
    Tensor(std::int64_t id, const Kind& kind, const Four& extents, Layout layout)
        : id_(id), kind_(kind), extents_(extents) {
        const auto [n, c, h, w] = extents;
        strides_ = {c * h * w, 1, c * w, c};
        if (layout == Layout::channels_first) strides_ = {c * h * w, h * w, w, 1};
        if (layout == Layout::gaps) strides_ = {((c + 3) * w + 5) * h + 7, 1, (c + 3) * w + 5, c + 3};
        size_ = 1;
        for (std::size_t i = 0; i < 4; ++i) size_ += (extents[i] - 1) * strides_[i];
    }

    void write(const Floats& values) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(size_) * width(), std::byte{0xFF});
        for_each([&](std::size_t i, std::size_t place) {
            std::vector<std::byte> element;
            DeviceMemory::append(element, values[i], kind_.element);
            std::ranges::copy(element, bytes.begin() + static_cast<std::ptrdiff_t>(place));
        });
        memory_.write_bytes(bytes);
    }
    [[nodiscard]] Floats read() const {
        const std::vector<std::byte> bytes = memory_.read_bytes();
        Floats values;
        for_each([&](std::size_t, std::size_t place) {
            values.push_back(DeviceMemory::element(bytes.data() + place, kind_.element));
        });
        return values;
    }
    [[nodiscard]] std::vector<std::byte> peek() const { return memory_.peek(); }
    [[nodiscard]] bool gaps_intact() const {
        std::vector<std::byte> bytes = memory_.read_bytes();
        for_each([&](std::size_t, std::size_t place) {
            std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(place), width(), std::byte{0xFF});
        });
        return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xFF}; });
    }
    [[nodiscard]] std::int64_t id() const { return id_; }
    [[nodiscard]] std::byte* memory() const { return memory_.get(); }
    [[nodiscard]] Descriptor descriptor(bool is_virtual = false) const {
        Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        good(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id_));
        good(tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, kind_.type));
        good(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents_));
        good(tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides_));
        good(tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16}));
        good(tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual));
        good(tensor.finalize());
        return tensor;
    }

private:
    [[nodiscard]] std::size_t width() const { return DeviceMemory::size_of(kind_.element); }
    void for_each(const std::function<void(std::size_t, std::size_t)>& f) const {
        std::size_t i = 0;
        for (std::int64_t n = 0; n < extents_[0]; ++n)
            for (std::int64_t h = 0; h < extents_[2]; ++h)
                for (std::int64_t w = 0; w < extents_[3]; ++w)
                    for (std::int64_t c = 0; c < extents_[1]; ++c) {
                        const std::int64_t place =
                            n * strides_[0] + c * strides_[1] + h * strides_[2] + w * strides_[3];
                        f(i++, static_cast<std::size_t>(place) * width());
                    }
    }

    std::int64_t id_;
    Kind kind_;
    Four extents_, strides_{};
    std::int64_t size_ = 0;
    DeviceMemory memory_;
};

struct Case {
    reference::Convolution problem;
    Kind kind = float32;
    emulator::CudnnDirection direction = emulator::CudnnDirection::forward;
    bool bias = false, relu = false;
    float alpha = 1, beta = 0;
    Layout layout = Layout::channels_last;
    bool flipped = false;
};

std::string describe(const Case& c) {
    const reference::Convolution& p = c.problem;
    const auto axis = [](const reference::Axis& a) {
        return std::to_string(a.input) + " -> " + std::to_string(a.output) + " (window " + std::to_string(a.kernel) +
               ", stride " + std::to_string(a.stride) + ", dilation " + std::to_string(a.dilation) + ")";
    };
    return std::string(c.kind.name) + ", direction " + std::to_string(static_cast<int>(c.direction)) + ", batch " +
           std::to_string(p.batch) + ", height " + axis(p.height) + ", width " + axis(p.width) + ", channels " +
           std::to_string(p.in) + " -> " + std::to_string(p.out) + " in " + std::to_string(p.groups) + " groups" +
           (c.bias ? ", bias" : "") + (c.relu ? ", ReLU" : "") + ", beta " + std::to_string(c.beta) + ", layout " +
           std::to_string(static_cast<int>(c.layout));
}

Floats rounded(Floats values, const Kind& kind) {
    for (float& value : values) {
        std::vector<std::byte> element;
        DeviceMemory::append(element, value, kind.element);
        value = DeviceMemory::element(element.data(), kind.element);
    }
    return values;
}

class Convolution : NotCopied {
public:
    Convolution(const Case& c, std::uint64_t seed)
        : case_(c),
          x_(0, c.kind, {c.problem.batch, c.problem.in, c.problem.height.input, c.problem.width.input}, c.layout),
          w_(1, c.kind,
             {c.problem.out, c.problem.in / c.problem.groups, c.problem.height.kernel, c.problem.width.kernel},
             c.layout),
          y_(2, c.kind, y_extents(), c.layout),
          b_(3, c.kind, {1, c.problem.out, 1, 1}, Layout::channels_last),
          sum_(4, float32, y_extents(), Layout::channels_last),
          biased_(5, float32, y_extents(), Layout::channels_last) {
        reference::Random random(seed);
        // With a mean of 1, so that a sum does not cancel to a value below its rounding error.
        values_x_ = rounded(random.normal(c.problem.input_size(), 0.5, 1.0), c.kind);
        values_w_ = rounded(random.normal(c.problem.weight_size(), 0.5, 1.0), c.kind);
        values_y_ = rounded(random.normal(c.problem.output_size(), 0.5, 1.0), c.kind);
        values_b_ = rounded(random.normal(c.problem.out), c.kind);
        good(cudnnCreate(&handle_));
        good(cudnnSetStream(handle_, stream_));
        fill();
    }
    ~Convolution() { cudnnDestroy(handle_); }

    void fill() {
        x_.write(values_x_);
        w_.write(values_w_);
        y_.write(values_y_);
        b_.write(values_b_);
    }

    /// The plan of an engine, finalised or rejected.
    cudnnStatus_t plan_of(std::int64_t index, const Descriptor* device = nullptr) {
        Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR), configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        good(engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph()));
        good(engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index));
        if (const cudnnStatus_t status = engine.finalize(); status != CUDNN_STATUS_SUCCESS) return status;
        good(configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine));
        good(configuration.finalize());
        plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        good(plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_));
        if (device != nullptr) good(plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device));
        good(plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration));
        if (const cudnnStatus_t status = plan.finalize(); status != CUDNN_STATUS_SUCCESS) return status;
        std::int64_t count = 0;
        good(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                      &workspace_bytes));
        if (workspace_bytes < std::int64_t{1} << 30) workspace.resize(static_cast<std::size_t>(workspace_bytes));
        ids = {0, 1, 2};
        pointers = {x_.memory(), w_.memory(), y_.memory()};
        if (case_.bias) {
            ids.push_back(3);
            pointers.push_back(b_.memory());
        }
        return CUDNN_STATUS_SUCCESS;
    }
    /// Queues the plan with `ids`, `pointers` and `workspace`.
    cudnnStatus_t queue() { return queue(workspace.get()); }
    cudnnStatus_t queue(void* at) {
        Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        good(pack.set_some(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data()));
        good(pack.set_some(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers),
                           pointers.data()));
        good(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, at));
        good(pack.finalize());
        return cudnnBackendExecute(handle_, plan.get(), pack.get());
    }
    void wait() { CHECK(cudaStreamSynchronize(stream_) == cudaSuccess); }

    [[nodiscard]] Tensor& result() {
        using enum emulator::CudnnDirection;
        return case_.direction == forward ? y_ : case_.direction == backward_data ? x_ : w_;
    }
    [[nodiscard]] reference::Doubles expected() const {
        using enum emulator::CudnnDirection;
        const reference::Convolution& p = case_.problem;
        reference::Doubles values = case_.direction == forward         ? p.forward(values_x_, values_w_, {})
                                    : case_.direction == backward_data ? p.input_gradient(values_y_, values_w_)
                                                                       : p.weight_gradient(values_y_, values_x_);
        const Floats& before = case_.direction == forward         ? values_y_
                               : case_.direction == backward_data ? values_x_
                                                                  : values_w_;
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<double>(case_.alpha) * values[i] +
                        static_cast<double>(case_.beta) * static_cast<double>(before[i]);
            if (case_.bias) values[i] += static_cast<double>(values_b_[i % values_b_.size()]);
        }
        return case_.relu ? reference::relu(values) : values;
    }
    [[nodiscard]] const Stream& stream() const { return stream_; }
    [[nodiscard]] Floats& weights() { return values_w_; }
    [[nodiscard]] cudnnHandle_t handle() const { return handle_; }

    [[nodiscard]] Descriptor graph() const {
        Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
        const auto& [height, width] = std::pair(case_.problem.height, case_.problem.width);
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2}));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                             case_.flipped ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Two{height.stride, width.stride}));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Two{height.pad_begin, width.pad_begin}));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Two{height.pad_end, width.pad_end}));
        good(convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS,
                             Two{case_.problem.height.dilation, case_.problem.width.dilation}));
        good(convolution.finalize());
        const Descriptor x = x_.descriptor(), w = w_.descriptor(), y = y_.descriptor(), b = b_.descriptor(),
                         sum = sum_.descriptor(true), biased = biased_.descriptor(true);
        std::vector<Descriptor> operations;
        operations.push_back(operation(convolution, x, w, case_.bias || case_.relu ? sum : y));
        if (case_.bias) operations.push_back(pointwise(CUDNN_POINTWISE_ADD, sum, &b, case_.relu ? biased : y));
        if (case_.relu)
            operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, case_.bias ? biased : sum, nullptr, y));
        std::vector<const Descriptor*> held;
        for (const Descriptor& each : operations) held.push_back(&each);
        Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        good(graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_));
        good(graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, held));
        good(graph.finalize());
        return graph;
    }

    Descriptor plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
    std::int64_t workspace_bytes = 0;
    DeviceMemory workspace;
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;

private:
    [[nodiscard]] Four y_extents() const {
        return {case_.problem.batch, case_.problem.out, case_.problem.height.output, case_.problem.width.output};
    }
    [[nodiscard]] Descriptor operation(const Descriptor& convolution, const Descriptor& x, const Descriptor& w,
                                       const Descriptor& y) const {
        const auto make = [&](cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t of_convolution,
                              cudnnBackendAttributeName_t of_x, cudnnBackendAttributeName_t of_w,
                              cudnnBackendAttributeName_t of_y, cudnnBackendAttributeName_t alpha,
                              cudnnBackendAttributeName_t beta) {
            Descriptor result(type);
            good(result.set(of_convolution, convolution));
            good(result.set(of_x, x));
            good(result.set(of_w, w));
            good(result.set(of_y, y));
            good(result.set(alpha, CUDNN_TYPE_FLOAT, case_.alpha));
            good(result.set(beta, CUDNN_TYPE_FLOAT, case_.beta));
            good(result.finalize());
            return result;
        };
        switch (case_.direction) {
            case emulator::CudnnDirection::forward:
                return make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
            case emulator::CudnnDirection::backward_data:
                return make(
                    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
            case emulator::CudnnDirection::backward_filter: break;
        }
        return make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    }
    static Descriptor pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                                const Descriptor& y) {
        Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        good(pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode));
        good(pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
        good(pointwise.finalize());
        Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        good(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise));
        good(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
        if (b != nullptr) good(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b));
        good(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
        good(operation.finalize());
        return operation;
    }

    Case case_;
    Tensor x_, w_, y_, b_, sum_, biased_;
    Floats values_x_, values_w_, values_y_, values_b_;
    cudnnHandle_t handle_ = nullptr;
    Stream stream_;
};

double tolerance(const Kind& kind) {
    return kind.type == CUDNN_DATA_FLOAT ? 3e-6 : kind.type == CUDNN_DATA_HALF ? 5e-4 : 3e-3;
}

std::vector<reference::Convolution> problems() {
    using reference::same, reference::valid;
    return {{2, same(9, 5, 1), same(7, 5, 1), 3, 64},
            {3, same(8, 3, 1), same(8, 3, 1), 16, 16},
            {2, same(8, 3, 2), same(5, 3, 2), 5, 16},
            {3, valid(7, 1, 1), valid(9, 1, 1), 16, 5},
            {2, valid(8, 1, 2), valid(8, 1, 2), 8, 16},
            {2, same(12, 2, 2), same(6, 2, 2), 8, 8},
            {2, valid(6, 3, 2), valid(13, 5, 3), 4, 3},
            {1, same(1, 1, 1), same(1, 1, 1), 3, 5},
            {2, same(1, 3, 1), same(1, 3, 1), 16, 16},
            {17, same(5, 3, 3), same(6, 2, 1), 1, 1},
            {2, same(24, 5, 1), same(24, 5, 1), 3, 64},
            // Groups and dilation.
            {2, same(9, 3, 1, 2), same(8, 3, 2), 8, 12, 4},
            {1, valid(11, 3, 2, 3), same(7, 5, 1, 2), 6, 4},
            {3, same(6, 3, 1), same(7, 3, 1), 9, 9, 9},
            {2, same(5, 2, 1, 2), valid(9, 2, 3), 6, 12, 6}};
}

constexpr std::array directions{emulator::CudnnDirection::forward, emulator::CudnnDirection::backward_data,
                                emulator::CudnnDirection::backward_filter};

}  // namespace

TEST_CASE("each engine of the emulator's cuDNN agrees with plain loops in every direction and element type") {
    std::size_t i = 0;
    for (const reference::Convolution& problem : problems())
        for (const Kind& kind : {float32, bfloat16, float16})
            for (const emulator::CudnnDirection direction : directions) {
                const bool forward = direction == emulator::CudnnDirection::forward;
                Case c{.problem = problem, .kind = kind, .direction = direction};
                c.bias = forward && i % 3 != 0;
                c.relu = c.bias && i % 2 == 0;
                c.layout = static_cast<Layout>(i % 4 % 3);
                c.alpha = i % 5 == 0 ? (c.relu ? 0.5F : -0.5F) : 1.0F;
                c.beta = !c.bias && i % 7 == 0 ? 2.0F : 0.0F;
                ++i;
                const std::uint64_t seed = reference::fresh_seed();
                INFO(describe(c), ", seed ", seed);
                Convolution convolution(c, seed);
                const reference::Doubles expected = convolution.expected();
                for (const std::int64_t engine : {emulator::plain_engine, emulator::tensor_core_engine,
                                                  emulator::nondeterministic_engine, emulator::tiled_engine}) {
                    CAPTURE(engine);
                    convolution.fill();
                    REQUIRE(convolution.plan_of(engine) == CUDNN_STATUS_SUCCESS);
                    CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
                    convolution.wait();
                    const double distance = reference::distance(convolution.result().read(), expected);
                    const bool tf32 = engine == emulator::tensor_core_engine && kind.type == CUDNN_DATA_FLOAT;
                    CHECK(distance < (tf32 ? 1e-3 : tolerance(kind)));
                    CHECK(convolution.result().gaps_intact());
                }
            }
    CHECK(i == 135);
    CHECK(emulator::overruns() == 0);
}

TEST_CASE("the emulator's cuDNN dilates and flips a window according to its descriptor") {
    using reference::same;
    Case c{.problem = {2, same(9, 3, 1), same(8, 3, 1), 4, 6}};
    c.flipped = true;
    Convolution flipped(c, 5);
    Floats turned = flipped.weights();
    for (std::size_t o = 0; o < 6; ++o)
        for (std::size_t tap = 0; tap < 9; ++tap)
            for (std::size_t k = 0; k < 4; ++k)
                turned[(o * 9 + tap) * 4 + k] = flipped.weights()[(o * 9 + 8 - tap) * 4 + k];
    REQUIRE(flipped.plan_of(emulator::plain_engine) == CUDNN_STATUS_SUCCESS);
    CHECK(flipped.queue() == CUDNN_STATUS_SUCCESS);
    flipped.wait();
    flipped.weights() = turned;
    CHECK(reference::distance(flipped.result().read(), flipped.expected()) < 3e-6);

    // A window of 3 with dilation 2 is one of 5 with holes.
    c.flipped = false;
    c.problem = {2, same(9, 3, 1, 2), same(8, 3, 1, 2), 4, 6};
    Convolution dilated(c, 6);
    REQUIRE(dilated.plan_of(emulator::tiled_engine) == CUDNN_STATUS_SUCCESS);
    CHECK(dilated.queue() == CUDNN_STATUS_SUCCESS);
    dilated.wait();
    Case wide{.problem = {2, same(9, 5, 1), same(8, 5, 1), 4, 6}};
    Convolution holes(wide, 6);
    std::ranges::fill(holes.weights(), 0.0F);
    for (std::size_t o = 0; o < 6; ++o)
        for (std::size_t r = 0; r < 3; ++r)
            for (std::size_t s = 0; s < 3; ++s)
                for (std::size_t k = 0; k < 4; ++k)
                    holes.weights()[((o * 5 + 2 * r) * 5 + 2 * s) * 4 + k] =
                        dilated.weights()[((o * 3 + r) * 3 + s) * 4 + k];
    CHECK(reference::distance(dilated.result().read(), holes.expected()) < 3e-6);
}

TEST_CASE("engines that must be skipped are visible in the results of the emulator's cuDNN") {
    using reference::same;
    for (const emulator::CudnnDirection direction : directions) {
        Case c{.problem = {4, same(12, 5, 1), same(12, 5, 1), 16, 16}, .direction = direction};
        Convolution convolution(c, 11);
        const auto figures = [&](std::int64_t engine) {
            convolution.fill();
            REQUIRE(convolution.plan_of(engine) == CUDNN_STATUS_SUCCESS);
            CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
            convolution.wait();
            return convolution.result().read();
        };
        const reference::Doubles expected = convolution.expected();
        CHECK(reference::distance(figures(emulator::tensor_core_engine), expected) > 1e-5);
        CHECK(reference::distance(figures(emulator::down_convert_engine), expected) > 1e-4);
        CHECK(reference::distance(figures(emulator::short_sums_engine), expected) > 5e-4);
        const Floats plain = figures(emulator::plain_engine), tiled = figures(emulator::tiled_engine);
        CHECK_FALSE(reference::same_bits(plain, tiled));
        CHECK(reference::same_bits(plain, figures(emulator::plain_engine)));
        CHECK(reference::same_bits(tiled, figures(emulator::tiled_engine)));
        const Floats once = figures(emulator::nondeterministic_engine);
        CHECK_FALSE(reference::same_bits(once, figures(emulator::nondeterministic_engine)));
        CHECK(convolution.plan_of(emulator::compiled_engine) == CUDNN_STATUS_NOT_SUPPORTED);
        CHECK(convolution.plan_of(emulator::refused_engine) == CUDNN_STATUS_NOT_SUPPORTED);
        CHECK(convolution.plan_of(emulator::engine_count) == CUDNN_STATUS_NOT_SUPPORTED);
        REQUIRE(convolution.plan_of(emulator::large_workspace_engine) == CUDNN_STATUS_SUCCESS);
        CHECK(convolution.workspace_bytes > std::int64_t{1} << 30);
    }
}

TEST_CASE("the emulator's cuDNN does nothing at the call, and once for each launch of a capture") {
    emulator::set_eager(false);
    Case c{.problem = {2, reference::same(6, 3, 1), reference::same(6, 3, 1), 4, 4},
           .direction = emulator::CudnnDirection::backward_filter,
           .beta = 1};
    Convolution convolution(c, 2);
    REQUIRE(convolution.plan_of(emulator::tiled_engine) == CUDNN_STATUS_SUCCESS);
    const Floats before = convolution.result().read();
    const std::vector<std::byte> bytes_before = convolution.result().peek();
    CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
    CHECK(convolution.result().peek() == bytes_before);
    convolution.wait();
    const Floats once = convolution.result().read();
    CHECK(reference::distance(once, convolution.expected()) < 3e-6);

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaStreamBeginCapture(convolution.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);  // the pack of pointers is destroyed before the launch
    CHECK(cudaStreamEndCapture(convolution.stream(), &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(reference::same_bits(convolution.result().read(), once));
    for (int launches = 0; launches < 2; ++launches) CHECK(cudaGraphLaunch(exec, convolution.stream()) == cudaSuccess);
    convolution.wait();
    reference::Doubles three = convolution.expected();
    for (std::size_t i = 0; i < three.size(); ++i) three[i] = 3 * three[i] - 2 * static_cast<double>(before[i]);
    CHECK(reference::distance(convolution.result().read(), three) < 3e-6);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    emulator::set_eager(true);
}

TEST_CASE("the emulator's cuDNN rejects to run with pointers that do not fit the plan") {
    Case c{.problem = {2, reference::same(6, 3, 1), reference::same(6, 3, 1), 4, 4}, .bias = true, .relu = true};
    Convolution convolution(c, 2);
    const auto again = [&] { REQUIRE(convolution.plan_of(emulator::tiled_engine) == CUDNN_STATUS_SUCCESS); };
    again();
    REQUIRE(convolution.workspace_bytes > 0);
    convolution.pointers[2] = nullptr;
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    again();
    convolution.pointers[0] = static_cast<std::byte*>(convolution.pointers[0]) + 8;
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    again();
    alignas(16) std::array<std::byte, 16> of_host{};
    convolution.pointers[0] = of_host.data();
    CHECK(convolution.queue() == CUDNN_STATUS_EXECUTION_FAILED);
    again();
    convolution.ids[3] = 2;
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    again();
    convolution.ids.pop_back();
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM);
    convolution.pointers.pop_back();
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM);
    again();
    convolution.workspace.resize(0);
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    again();
    convolution.workspace.resize(static_cast<std::size_t>(convolution.workspace_bytes) + 64);
    CHECK(convolution.queue(convolution.workspace.get() + 64) == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    again();
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(convolution.queue() == CUDNN_STATUS_EXECUTION_FAILED);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    convolution.plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    CHECK(convolution.queue() == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    again();
    CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
    convolution.wait();
    CHECK(reference::distance(convolution.result().read(), convolution.expected()) < 3e-6);
}

TEST_CASE("the emulator's cuDNN describes a handle's device, and ranks the same engines for the description") {
    Convolution convolution({.problem = {2, reference::same(6, 3, 1), reference::same(6, 3, 1), 4, 4}}, 1);
    const auto text_of = [](const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
        std::int64_t size = 0;
        good(cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_CHAR, 0, &size, nullptr));
        std::string text(static_cast<std::size_t>(size), ' ');
        good(cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_CHAR, size, &size, text.data()));
        return text;
    };
    const auto described = [](const std::string& text) {
        Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        good(
            device.set_some(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(text), text.data()));
        good(device.finalize());
        return device;
    };
    const auto announced = [&](const Descriptor* device) {
        Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        good(heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, convolution.graph()));
        good(heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A));
        if (device != nullptr) good(heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device));
        good(heuristics.finalize());
        std::int64_t count = 0;
        good(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                      &count, nullptr));
        return count;
    };
    Descriptor of_handle(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    good(of_handle.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, convolution.handle()));
    good(of_handle.finalize());
    std::string text = text_of(of_handle, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    const Descriptor same_device = described(text);
    CHECK(announced(&same_device) == announced(nullptr));
    const std::string capability = "\"deviceVer\":";
    const std::size_t at = text.find(capability) + capability.size();
    REQUIRE(at < text.size());
    text.replace(at, 3, "750");  // no TF32
    const Descriptor older = described(text);
    CHECK(announced(&older) < announced(nullptr));

    // A plan for one GPU does not run on another.
    REQUIRE(convolution.plan_of(emulator::plain_engine, &older) == CUDNN_STATUS_SUCCESS);
    CHECK(convolution.queue() == CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
    REQUIRE(convolution.plan_of(emulator::plain_engine, &same_device) == CUDNN_STATUS_SUCCESS);
    CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
    convolution.wait();
}

TEST_CASE("a workspace that overlaps a tensor changes the results of the emulator's cuDNN") {
    for (const emulator::CudnnDirection direction : directions) {
        for (const std::size_t over : {0, 1, 2}) {
            CAPTURE(over);
            Convolution convolution(
                {.problem = {8, reference::same(6, 3, 1), reference::same(6, 3, 1), 4, 4}, .direction = direction}, 2);
            REQUIRE(convolution.plan_of(emulator::tiled_engine) == CUDNN_STATUS_SUCCESS);
            CHECK(convolution.queue(convolution.pointers[over]) == CUDNN_STATUS_SUCCESS);
            convolution.wait();
            const double distance = reference::distance(convolution.result().read(), convolution.expected());
            CHECK_FALSE(distance < 1e-3);  // a NaN
        }
    }
}

TEST_CASE("a write beyond a workspace that is smaller than the plan's is detected") {
    const int before = emulator::overruns();
    {
        Convolution convolution({.problem = {1, reference::same(6, 3, 1), reference::same(6, 3, 1), 4, 4}}, 2);
        REQUIRE(convolution.plan_of(emulator::tiled_engine) == CUDNN_STATUS_SUCCESS);
        convolution.workspace.resize(static_cast<std::size_t>(convolution.workspace_bytes) - 16);
        CHECK(convolution.queue() == CUDNN_STATUS_SUCCESS);
        convolution.wait();
    }
    CHECK(emulator::overruns() == before + 1);
    CHECK(emulator::failure().ends_with("bytes of device 0 was written outside of"));
    emulator::mend();  // the next case has no failure
}
