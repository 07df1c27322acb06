// SPDX-License-Identifier: Apache-2.0
//
// Owning wrappers of cuDNN's graph interface: descriptors, and the tensors and operations of a graph. Tensors are
// channels last: extents are given in cuDNN's order, {n, c, h, w}, and the strides are those of n h w c.
//
// A graph is made for a handle, whose device must be present, or from a description of a device, which need not be
// present: the plans of such a graph can be made and queried, but not run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cudnn_backend.h>

#include <cupola/device/cuda.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// One object of the interface. Its attributes are set, then it is finalised, then it can be used and queried.
class CudnnDescriptor {
public:
    CudnnDescriptor() = default;
    explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
        check_cudnn(cudnnBackendCreateDescriptor(type, object_.out()), "cudnnBackendCreateDescriptor");
    }
    [[nodiscard]] cudnnBackendDescriptor_t get() const { return object_.get(); }
    explicit operator bool() const { return static_cast<bool>(object_); }

    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
             const void* values) {
        check_cudnn(cudnnBackendSetAttribute(get(), name, type, count, values), "cudnnBackendSetAttribute");
    }
    template <class V>
    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
        set(name, type, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
        set(name, CUDNN_TYPE_INT64, std::ssize(values), values.data());
    }
    void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
    }
    void set(cudnnBackendAttributeName_t name, std::span<const CudnnDescriptor> others) {
        std::vector<cudnnBackendDescriptor_t> objects;
        for (const CudnnDescriptor& other : others) objects.push_back(other.get());
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(objects), objects.data());
    }
    void finalize() { check_cudnn(cudnnBackendFinalize(get()), "cudnnBackendFinalize"); }
    /// Finalises without throwing; for callers that handle rejection by cuDNN.
    [[nodiscard]] cudnnStatus_t try_finalize() { return cudnnBackendFinalize(get()); }

    template <class V>
    [[nodiscard]] V get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
        V value{};
        std::int64_t count = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, type, 1, &count, &value), "cudnnBackendGetAttribute");
        return value;
    }
    /// At most `max_count` values.
    template <class V>
    [[nodiscard]] std::vector<V> get_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                         std::int64_t max_count) const {
        std::vector<V> values(static_cast<std::size_t>(max_count));
        std::int64_t count = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, type, max_count, &count, values.data()),
                    "cudnnBackendGetAttribute");
        values.resize(static_cast<std::size_t>(std::min(count, max_count)));
        return values;
    }
    [[nodiscard, gnu::cold]] std::string get_text(cudnnBackendAttributeName_t name) const {
        std::int64_t size = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_CHAR, 0, &size, nullptr),
                    "cudnnBackendGetAttribute");
        const std::vector<char> characters = get_all<char>(name, CUDNN_TYPE_CHAR, size);
        return {characters.begin(), characters.end()};
    }
    /// The descriptors of an attribute, at most `max_count`, or all of them if that is 0.
    [[nodiscard]] std::vector<CudnnDescriptor> get_descriptors(cudnnBackendAttributeName_t name,
                                                               cudnnBackendDescriptorType_t type,
                                                               std::int64_t max_count = 0) const {
        std::int64_t count = max_count;
        if (max_count == 0) {
            check_cudnn(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
                        "cudnnBackendGetAttribute");
        }
        std::vector<CudnnDescriptor> result;
        std::vector<cudnnBackendDescriptor_t> objects;
        for (std::int64_t i = 0; i < count; ++i) objects.push_back(result.emplace_back(type).get());
        if (count == 0) return result;
        std::int64_t got = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, objects.data()),
                    "cudnnBackendGetAttribute");
        while (std::ssize(result) > got) result.pop_back();
        return result;
    }

private:
    CudaHandle<cudnnBackendDescriptor_t, &cudnnBackendDestroyDescriptor> object_;
};

/// The target of a plan: a handle, or the description of a device that is not present.
struct CudnnTarget {
    cudnnHandle_t handle = nullptr;
    /// Null where there is a handle.
    const CudnnDescriptor* device = nullptr;
    /// The device's part of the key under which a choice is kept.
    std::string device_name;
};

/// "NVIDIA H200".
[[nodiscard, gnu::cold]] inline std::string cuda_device_name(int ordinal) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    return properties.name;
}

/// A device from cuDNN's JSON description of it: CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_device(std::string_view description) {
    CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(description), description.data());
    device.finalize();
    return device;
}

/// cuDNN's JSON description of a handle's device, for cudnn_device.
[[nodiscard, gnu::cold]] inline std::string cudnn_device_description(cudnnHandle_t handle) {
    CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
    device.finalize();
    return device.get_text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
}

/// The alignment in bytes of each pointer passed to a plan, as cuDNN's vector loads require.
inline constexpr std::int64_t cudnn_alignment = 16;

/// A tensor of extents {n, c, h, w}, stored as n h w c. A virtual tensor exists within a graph only.
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_tensor(std::int64_t id, cudnnDataType_t type,
                                                             const std::array<std::int64_t, 4>& extents,
                                                             bool is_virtual = false) {
    const auto [n, c, h, w] = extents;
    const std::array<std::int64_t, 4> strides{c * h * w, 1, c * w, c};
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, cudnn_alignment);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    tensor.finalize();
    return tensor;
}

/// A convolution over two axes, height first: strides, padding before and after, and dilations.
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_convolution(const std::array<std::int64_t, 2>& strides,
                                                                  const std::array<std::int64_t, 2>& before,
                                                                  const std::array<std::int64_t, 2>& after,
                                                                  const std::array<std::int64_t, 2>& dilations) {
    CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides);
    convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before);
    convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after);
    convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations);
    convolution.finalize();
    return convolution;
}

/// The attributes whose names differ between the three operations of a convolution.
struct CudnnConvolutionNames {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
inline constexpr CudnnConvolutionNames cudnn_forward_names{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
inline constexpr CudnnConvolutionNames cudnn_backward_data_names{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
inline constexpr CudnnConvolutionNames cudnn_backward_weights_names{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

/// One of the three operations. Its result is written where `beta` is 0, and added to the previous value where it is 1.
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_convolution_operation(const CudnnConvolutionNames& names,
                                                                            const CudnnDescriptor& convolution,
                                                                            const CudnnDescriptor& x,
                                                                            const CudnnDescriptor& w,
                                                                            const CudnnDescriptor& y, float beta = 0) {
    CudnnDescriptor operation(names.operation);
    operation.set(names.convolution, convolution);
    operation.set(names.x, x);
    operation.set(names.w, w);
    operation.set(names.y, y);
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, beta);
    operation.finalize();
    return operation;
}

/// y = mode(x) or, where there is a `b`, mode(x, b).
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_pointwise_operation(cudnnPointwiseMode_t mode,
                                                                          const CudnnDescriptor& x,
                                                                          const CudnnDescriptor* b,
                                                                          const CudnnDescriptor& y) {
    CudnnDescriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    pointwise.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation.finalize();
    return operation;
}

/// Operations that run as one. The tensors' numbers say which tensors they share.
[[nodiscard, gnu::cold]] inline CudnnDescriptor cudnn_operation_graph(const CudnnTarget& target,
                                                                      std::span<const CudnnDescriptor> operations) {
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
    graph.finalize();
    return graph;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
