// SPDX-License-Identifier: Apache-2.0
//
// The descriptors of the cuDNN stand-in: attributes that are set, checked when the descriptor is finalised, and readable
// afterwards. A descriptor that is passed to another is copied, so that the first may be destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <cudnn_backend.h>

#include "cudnn_engines.hpp"
#include "cudnn_program.hpp"

struct cudnnContext {
    int device = 0;
    cudaStream_t stream = nullptr;
};

namespace cupola::emulator {

struct CudnnObject;
using CudnnObjectPointer = std::shared_ptr<const CudnnObject>;

/// What an attribute holds: elements, or descriptors.
struct CudnnValue {
    std::vector<std::byte> bytes;
    std::vector<CudnnObjectPointer> objects;
    std::int64_t count = 0;
};

/// An attribute that descriptors of a type have.
struct CudnnAttribute {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    /// How many elements it may have; negative for any number.
    std::int64_t most = 1;
    /// Whether it can be set, and not only asked.
    bool settable = true;
    /// The descriptors that it may hold; nothing for any operation.
    std::optional<cudnnBackendDescriptorType_t> holds = std::nullopt;
};

[[nodiscard]] std::span<const CudnnAttribute> cudnn_attributes();
[[nodiscard]] std::size_t cudnn_size_of(cudnnBackendAttributeType_t type);

/// A GPU that plans are made for.
struct CudnnDevice {
    std::string description;
    int compute_capability = 0;
};
struct CudnnConvolutionSettings {
    std::array<std::int64_t, 2> strides{}, pads_before{}, pads_after{}, dilations{};
    bool flipped = false;
};
using CudnnOperation = std::variant<CudnnConvolution, CudnnPointwise>;
/// The operations, and what they are together; nothing where no engine knows the pattern.
struct CudnnGraph {
    std::vector<CudnnOperation> operations;
    std::optional<CudnnProgram> program;
};
/// A graph with an engine; with a configuration and a device it is a plan.
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
    /// What finalising made of the attributes.
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
    /// What a finalised descriptor behind an attribute was made into; null where there is none.
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

/// A status other than success, with the reason for cudnnGetLastErrorString.
struct CudnnFailure {
    cudnnStatus_t status;
    std::string reason;
};

/// Checks the attributes and makes what they describe. Throws CudnnFailure.
void finalize_cudnn_object(CudnnObject& object);

/// What `device` is, as cuDNN would write it.
[[nodiscard]] CudnnDevice describe_cudnn_device(int device);

}  // namespace cupola::emulator
