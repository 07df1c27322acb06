// SPDX-License-Identifier: Apache-2.0
//
// The results of cuDNN and cuBLASLt for calls that need no GPU. Compiled with NVIDIA's libraries and with the emulator's
// stand-ins: both must return the same.
#include "../test.hpp"

#include <cublasLt.h>
#include <cudnn_backend.h>

#include "cudnn_descriptor.hpp"

using cudnn_test::Descriptor;

namespace {

using Four = std::array<std::int64_t, 4>;
using Two = std::array<std::int64_t, 2>;

/// A tensor, not finalised.
Descriptor tensor_of(std::int64_t id, const Four& extents, const Four& strides,
                     cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id) == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type) == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents) == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides) == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16}) == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, false) == CUDNN_STATUS_SUCCESS);
    return tensor;
}
/// A tensor with channels last, finalised.
Descriptor channels_last(std::int64_t id, const Four& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const auto [n, c, h, w] = extents;
    Descriptor tensor = tensor_of(id, extents, {c * h * w, 1, c * w, c}, type);
    CHECK(tensor.finalize() == CUDNN_STATUS_SUCCESS);
    return tensor;
}
/// A convolution, not finalised.
Descriptor convolution_of(const Two& strides, const Two& before, const Two& dilations) {
    Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides);
    convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before);
    convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Two{1, 1});
    convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations);
    return convolution;
}
Descriptor same_convolution() {
    Descriptor convolution = convolution_of({1, 1}, {1, 1}, {1, 1});
    CHECK(convolution.finalize() == CUDNN_STATUS_SUCCESS);
    return convolution;
}
/// A forward operation, not finalised.
Descriptor forward_of(const Descriptor* convolution, const Descriptor& x, const Descriptor& w, const Descriptor& y,
                      bool factors = true) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    if (convolution != nullptr) operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, *convolution);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    if (factors) {
        operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
        operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0F);
    }
    return operation;
}

const Four x_extents{2, 3, 8, 8}, w_extents{16, 3, 3, 3}, y_extents{2, 16, 8, 8};

Descriptor graph() {
    const Descriptor convolution = same_convolution(), x = channels_last(0, x_extents), w = channels_last(1, w_extents),
                     y = channels_last(2, y_extents);
    Descriptor operation = forward_of(&convolution, x, w, y);
    CHECK(operation.finalize() == CUDNN_STATUS_SUCCESS);
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    CHECK(graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation) == CUDNN_STATUS_SUCCESS);
    CHECK(graph.finalize() == CUDNN_STATUS_SUCCESS);
    return graph;  // the descriptors that it was made from are destroyed here
}

/// A device, not finalised.
Descriptor device_of(const std::string& text) {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    CHECK(device.set_some(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(text), text.data()) ==
          CUDNN_STATUS_SUCCESS);
    return device;
}
Descriptor described_device() {
    std::ifstream file("tests/gpu/device_sm90.json");
    REQUIRE_MESSAGE(file, "tests/gpu/device_sm90.json is not there: run from the root of the sources");
    Descriptor device = device_of({std::istreambuf_iterator<char>(file), {}});
    CHECK(device.finalize() == CUDNN_STATUS_SUCCESS);
    return device;
}

Descriptor heuristics() {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    CHECK(heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph()) == CUDNN_STATUS_SUCCESS);
    CHECK(heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A) == CUDNN_STATUS_SUCCESS);
    CHECK(heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, described_device()) == CUDNN_STATUS_SUCCESS);
    return heuristics;
}

std::string last_words() {
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return words;
}

}  // namespace

TEST_CASE("cuDNN's descriptors lack attributes until they are set, and cannot be changed once they are finalised") {
    CHECK(cudnnBackendFinalize(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK(cudnnBackendDestroyDescriptor(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK_FALSE(last_words().empty());
    CHECK(last_words().empty());

    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(tensor.finalize() == CUDNN_STATUS_BAD_PARAM);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::int64_t{0});
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    CHECK(tensor.finalize() == CUDNN_STATUS_BAD_PARAM);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, Four{2, 3, 4, 5});
    CHECK(tensor.finalize() == CUDNN_STATUS_BAD_PARAM);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, std::array<std::int64_t, 3>{60, 1, 15});
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
    CHECK(tensor.finalize() == CUDNN_STATUS_BAD_PARAM);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, Four{60, 1, 15, 3});
    std::int64_t count = 0;
    Four values{};
    CHECK(cudnnBackendGetAttribute(tensor.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, &count,
                                   values.data()) == CUDNN_STATUS_NOT_INITIALIZED);

    // Attributes with wrong types or counts.
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, std::int64_t{0}) ==
          CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK(tensor.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD) ==
          CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor.set_some(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, nullptr) == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor.set_some(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, values.data()) == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor.set_some(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, values.data()) == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor.set_some(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 2, values.data()) ==
          CUDNN_STATUS_BAD_PARAM);

    CHECK(tensor.finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(tensor.finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::int64_t{1}) == CUDNN_STATUS_BAD_PARAM);
    const auto get = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t requested) {
        return cudnnBackendGetAttribute(tensor.get(), name, type, requested, &count, values.data());
    };
    CHECK(get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4) == CUDNN_STATUS_SUCCESS);
    CHECK(count == 4);
    CHECK(values == Four{2, 3, 4, 5});
    CHECK(get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2) == CUDNN_STATUS_SUCCESS);
    CHECK(count == 2);
    CHECK(get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0) == CUDNN_STATUS_SUCCESS);
    CHECK(count == 0);
    CHECK(cudnnBackendGetAttribute(tensor.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &count, nullptr) ==
          CUDNN_STATUS_SUCCESS);
    CHECK(count == 4);
    CHECK(get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4) == CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK(get(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_INT64, 1) == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("cuDNN rejects tensors and convolutions whose numbers are out of range") {
    CHECK(tensor_of(0, {2, 3, 4, -5}, {60, 1, 15, 3}).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor_of(0, {2, 3, 4, 5}, {-60, 1, 15, 3}).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(tensor_of(0, {2, 3, 4, 0}, {60, 1, 15, 3}).finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(tensor_of(0, {2, 3, 4, 5}, {0, 1, 15, 3}).finalize() == CUDNN_STATUS_SUCCESS);
    Descriptor odd = tensor_of(0, {2, 3, 4, 5}, {60, 1, 15, 3});
    odd.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{3});
    CHECK(odd.finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(convolution_of({0, 1}, {1, 1}, {1, 1}).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(convolution_of({1, 1}, {-1, 1}, {1, 1}).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(convolution_of({1, 1}, {1, 1}, {0, 1}).finalize() == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("cuDNN rejects an operation that lacks a part, or whose parts do not fit together") {
    const Descriptor convolution = same_convolution(), x = channels_last(0, x_extents), w = channels_last(1, w_extents),
                     y = channels_last(2, y_extents), unfinished = tensor_of(0, x_extents, {192, 1, 24, 3});
    CHECK(forward_of(&convolution, unfinished, w, y).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(forward_of(nullptr, x, w, y).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(forward_of(&convolution, x, w, channels_last(2, {2, 16, 7, 8})).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(forward_of(&convolution, x, w, channels_last(2, {2, 15, 8, 8})).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(forward_of(&convolution, x, channels_last(1, {16, 4, 3, 3}), y).finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(forward_of(&convolution, x, channels_last(1, w_extents, CUDNN_DATA_BFLOAT16), y).finalize() ==
          CUDNN_STATUS_SUCCESS);
    CHECK(forward_of(&convolution, x, w, y, false).finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("cuDNN reads a description of a device, and names a missing property") {
    CHECK(device_of("{}").finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(last_words() == "!json_object.HasMember(\"maxGridSize\")");
    CHECK(device_of("not JSON").finalize() == CUDNN_STATUS_BAD_PARAM);
    CHECK(last_words() == "!json_object.IsObject()");
    static_cast<void>(described_device());
}

TEST_CASE("cuDNN's heuristics, engines and plans require their descriptors") {
    CHECK(Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM);
    Descriptor ranked = heuristics();
    std::int64_t count = 0;
    const auto results = [&](std::int64_t requested, cudnnBackendDescriptor_t* to) {
        return cudnnBackendGetAttribute(ranked.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        requested, &count, to);
    };
    CHECK(results(0, nullptr) == CUDNN_STATUS_NOT_INITIALIZED);
    CHECK(ranked.finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(results(0, nullptr) == CUDNN_STATUS_SUCCESS);
    CHECK(count > 1);
    std::vector<Descriptor> configurations;
    std::vector<cudnnBackendDescriptor_t> objects;
    for (std::int64_t i = count; i > 0; --i)
        objects.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    CHECK(results(count, objects.data()) == CUDNN_STATUS_SUCCESS);
    CHECK(count > 1);
    CHECK_MESSAGE(count < std::ssize(objects), "cuDNN announces more configurations than it then gives");

    CHECK(Descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph());
    engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, described_device());
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::int64_t{9999});
    CHECK(engine.finalize() == CUDNN_STATUS_NOT_SUPPORTED);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::int64_t{0});
    CHECK(engine.finalize() == CUDNN_STATUS_SUCCESS);
    Descriptor knob(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_TILE_SIZE);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, std::int64_t{1});
    CHECK(knob.finalize() == CUDNN_STATUS_SUCCESS);
    Descriptor with_knob(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), without(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    with_knob.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    with_knob.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob);
    CHECK(with_knob.finalize() == CUDNN_STATUS_NOT_SUPPORTED);
    without.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    CHECK(without.set_some(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr) ==
          CUDNN_STATUS_SUCCESS);
    CHECK(without.finalize() == CUDNN_STATUS_SUCCESS);

    CHECK(Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, without);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, described_device());
    std::int64_t workspace = -1;
    const auto workspace_size = [&] {
        return cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                        &count, &workspace);
    };
    CHECK(workspace_size() == CUDNN_STATUS_NOT_INITIALIZED);
    CHECK(plan.finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(workspace_size() == CUDNN_STATUS_SUCCESS);
    CHECK(workspace >= 0);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    CHECK(pack.finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendExecute(nullptr, plan.get(), pack.get()) == CUDNN_STATUS_BAD_PARAM);
    CHECK(cudnnSetStream(nullptr, nullptr) == CUDNN_STATUS_BAD_PARAM);
    CHECK(cudnnDestroy(nullptr) == CUDNN_STATUS_SUCCESS);
}

TEST_CASE("cuDNN and cuBLASLt have texts for their statuses, and versions") {
    CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)) ==
          "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER");
    CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH)) ==
          "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH");
    CHECK(std::string(cudnnGetErrorString(static_cast<cudnnStatus_t>(7))) == "CUDNN_UNKNOWN_STATUS");
    CHECK(cudnnGetVersion() / 10000 == 9);
    CHECK(std::string(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) == "CUBLAS_STATUS_NOT_SUPPORTED");
    CHECK(std::string(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE)) ==
          "an unsupported value or parameter was passed to the function");
    CHECK(cublasLtGetVersion() / 10000 == 13);
}

TEST_CASE("cuBLASLt accepts an attribute only with its own size") {
    cublasLtMatmulDesc_t description = nullptr;
    REQUIRE(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    const std::int64_t value = 1;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* from, std::size_t bytes) {
        return cublasLtMatmulDescSetAttribute(description, attribute, from, bytes);
    };
    CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, &value, 4) == CUBLAS_STATUS_SUCCESS);
    CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, &value, 8) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(set(CUBLASLT_MATMUL_DESC_EPILOGUE, &value, 4) == CUBLAS_STATUS_SUCCESS);
    CHECK(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &value, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &value, 8) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulPreference_t preference = nullptr;
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, std::size_t bytes) {
        return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, bytes);
    };
    CHECK(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8) == CUBLAS_STATUS_SUCCESS);
    CHECK(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatrixLayout_t layout = nullptr;
    CHECK(cublasLtMatrixLayoutCreate(nullptr, CUDA_R_32F, 4, 5, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 5, 4) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtCreate(nullptr) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescDestroy(description) == CUBLAS_STATUS_SUCCESS);
}
