// SPDX-License-Identifier: Apache-2.0
//
// The descriptors of the cuDNN stand-in: attributes that are set, checked when the descriptor is finalised, and readable
// afterwards. A descriptor that is passed to another is copied, so that the first may be destroyed.
#pragma once

#include <variant>

#include <cudnn_backend.h>

#include "../../standard.hpp"
#include "cudnn_engines.hpp"
#include "cudnn_program.hpp"

struct cudnnContext {
    int device = 0;
    cudaStream_t stream = nullptr;
};

namespace cupola::emulator {

struct CudnnObject;
using CudnnObjectPointer = std::shared_ptr<const CudnnObject>;

/// The contents of an attribute: elements or descriptors.
struct CudnnValue {
    std::vector<std::byte> bytes;
    std::vector<CudnnObjectPointer> objects;
    std::int64_t count = 0;
};

/// An attribute of the descriptors of one type.
struct CudnnAttribute {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    /// The number of elements that it may have; negative for any number.
    std::int64_t most = 1;
    /// Whether it can be set; otherwise it can only be read.
    bool settable = true;
    /// The type of the descriptors that it may contain; empty for any operation.
    std::optional<cudnnBackendDescriptorType_t> holds = std::nullopt;
};

[[nodiscard]] std::span<const CudnnAttribute> cudnn_attributes();
[[nodiscard]] std::size_t cudnn_size_of(cudnnBackendAttributeType_t type);

/// A GPU for which plans are made.
struct CudnnDevice {
    std::string description;
    int compute_capability = 0;
};
struct CudnnConvolutionSettings {
    std::array<std::int64_t, 2> strides{}, pads_before{}, pads_after{}, dilations{};
    bool flipped = false;
};
using CudnnOperation = std::variant<CudnnConvolution, CudnnPointwise>;
/// The operations, and the pattern that they form; empty if no engine supports it.
struct CudnnGraph {
    std::vector<CudnnOperation> operations;
    std::optional<CudnnProgram> program;
};
/// A graph with an engine; with a configuration and a device also, a plan.
struct CudnnEngine {
    CudnnGraph graph;
    CudnnEngineKind kind;
    CudnnDevice device;
    CudnnKnobs knobs;
};

struct CudnnObject {
    cudnnBackendDescriptorType_t type{};
    bool finalized = false;
    std::map<cudnnBackendAttributeName_t, CudnnValue> values;
    /// The result of finalising the attributes.
    std::variant<std::monostate, CudnnTensor, CudnnConvolutionSettings, cudnnPointwiseMode_t, CudnnOperation,
                 CudnnGraph, CudnnEngine, CudnnDevice>
        made;

    [[nodiscard]] bool has(cudnnBackendAttributeName_t name) const { return values.contains(name); }
    template <class V>
    [[nodiscard]] std::vector<V> all(cudnnBackendAttributeName_t name) const {
        const auto found = values.find(name);
        if (found == values.end()) return {};
        std::vector<V> result(static_cast<std::size_t>(found->second.count));
        if (!result.empty()) std::memcpy(result.data(), found->second.bytes.data(), result.size() * sizeof(V));
        return result;
    }
    template <class V>
    [[nodiscard]] V one(cudnnBackendAttributeName_t name, V otherwise = {}) const {
        const auto found = values.find(name);
        if (found == values.end() || found->second.count != 1) return otherwise;
        V value{};
        std::memcpy(&value, found->second.bytes.data(), sizeof value);
        return value;
    }
    [[nodiscard]] std::vector<CudnnObjectPointer> objects(cudnnBackendAttributeName_t name) const {
        const auto found = values.find(name);
        return found == values.end() ? std::vector<CudnnObjectPointer>() : found->second.objects;
    }
    /// The result of finalising the descriptor in an attribute; null if there is none.
    template <class Made>
    [[nodiscard]] const Made* made_of(cudnnBackendAttributeName_t name) const {
        const auto held = objects(name);
        if (held.size() != 1 || !held[0]->finalized) return nullptr;
        return std::get_if<Made>(&held[0]->made);
    }

    template <class V>
    void keep(cudnnBackendAttributeName_t name, std::span<const V> elements) {
        CudnnValue& value = values[name];
        value.count = static_cast<std::int64_t>(elements.size());
        value.bytes.resize(elements.size_bytes());
        if (!elements.empty()) std::memcpy(value.bytes.data(), elements.data(), elements.size_bytes());
    }
    void keep(cudnnBackendAttributeName_t name, std::vector<CudnnObjectPointer> objects) {
        CudnnValue& value = values[name];
        value.count = static_cast<std::int64_t>(objects.size());
        value.objects = std::move(objects);
    }
};

/// A status other than success, and the reason that cudnnGetLastErrorString returns.
struct CudnnFailure {
    cudnnStatus_t status;
    std::string reason;
};

/// Checks the attributes and creates the object that they describe. Throws CudnnFailure.
void finalize_cudnn_object(CudnnObject& object);

/// The description of `device` in the form of cuDNN.
[[nodiscard]] CudnnDevice describe_cudnn_device(int device);

}  // namespace cupola::emulator
