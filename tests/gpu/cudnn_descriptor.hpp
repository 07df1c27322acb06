// SPDX-License-Identifier: Apache-2.0
//
// A descriptor of cuDNN for tests of its C functions, which do not use Cupola's class.
#pragma once

#include "../test.hpp"

#include <cudnn_backend.h>

namespace cudnn_test {

/// A descriptor that is destroyed at the end of its scope. Its functions return the status of the call.
class Descriptor {
public:
    explicit Descriptor(cudnnBackendDescriptorType_t type) {
        REQUIRE(cudnnBackendCreateDescriptor(type, &object_) == CUDNN_STATUS_SUCCESS);
    }
    Descriptor(Descriptor&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Descriptor() {
        if (object_ != nullptr) cudnnBackendDestroyDescriptor(object_);
    }
    [[nodiscard]] cudnnBackendDescriptor_t get() const { return object_; }
    cudnnStatus_t set_some(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                           const void* values) {
        return cudnnBackendSetAttribute(object_, name, type, count, values);
    }
    template <class V>
    cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
        return set_some(name, type, 1, &value);
    }
    template <std::size_t n>
    cudnnStatus_t set(cudnnBackendAttributeName_t name, const std::array<std::int64_t, n>& values) {
        return set_some(name, CUDNN_TYPE_INT64, std::int64_t{n}, values.data());
    }
    cudnnStatus_t set(cudnnBackendAttributeName_t name, const Descriptor& other) {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
    }
    /// Sets an attribute whose elements are descriptors.
    cudnnStatus_t set(cudnnBackendAttributeName_t name, const std::vector<const Descriptor*>& others) {
        std::vector<cudnnBackendDescriptor_t> objects;
        for (const Descriptor* other : others) objects.push_back(other->get());
        return set_some(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(objects), objects.data());
    }
    cudnnStatus_t finalize() { return cudnnBackendFinalize(object_); }

private:
    cudnnBackendDescriptor_t object_ = nullptr;
};

}  // namespace cudnn_test
