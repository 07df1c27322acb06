// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the stand-ins: a stream, an event, and device memory with values of an element type and `gap` unused
// elements after each `row` of them.
#pragma once

#include "../../../test.hpp"

#include <cuda_runtime_api.h>
#include <cupola/core/element_type.hpp>

#include "../../../reference/compare.hpp"

namespace emulator_tests {

/// What `make` makes on a device, which is not the current one afterwards.
template <class Handle, auto make, auto destroy>
struct Made : NotCopied {
    explicit Made(int device = 0) {
        CHECK(cudaSetDevice(device) == cudaSuccess);
        CHECK(make(&get) == cudaSuccess);
        CHECK(cudaSetDevice(0) == cudaSuccess);
    }
    ~Made() { destroy(get); }
    operator Handle() const { return get; }
    Handle get = nullptr;
};
inline cudaError_t make_stream(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}
using Stream = Made<cudaStream_t, make_stream, cudaStreamDestroy>;
using Event = Made<cudaEvent_t, cudaEventCreate, cudaEventDestroy>;

class DeviceMemory : NotCopied {
public:
    DeviceMemory() = default;
    ~DeviceMemory() { cudaFree(memory_); }

    [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(memory_); }
    void resize(std::size_t bytes) {
        cudaFree(memory_);
        memory_ = nullptr;
        size_ = bytes;
        if (bytes > 0) REQUIRE(cudaMalloc(&memory_, bytes) == cudaSuccess);
    }
    /// Writes the values in an element type of CUDA's libraries. The gaps become NaN.
    void write(const reference::Floats& values, cudaDataType type, std::int64_t row, std::int64_t gap) {
        std::vector<std::byte> bytes;
        for (std::size_t i = 0; i < values.size(); ++i) {
            append(bytes, values[i], type);
            const bool ends_row = (static_cast<std::int64_t>(i) + 1) % row == 0;
            bytes.insert(bytes.end(), ends_row ? static_cast<std::size_t>(gap) * size_of(type) : 0, std::byte{0xFF});
        }
        write_bytes(bytes);
    }
    [[nodiscard]] reference::Floats read(cudaDataType type, std::int64_t row, std::int64_t gap) const {
        const std::vector<std::byte> bytes = read_bytes();
        reference::Floats values;
        for (std::size_t i = 0; i < bytes.size() / size_of(type); ++i) {
            if (static_cast<std::int64_t>(i) % (row + gap) < row)
                values.push_back(element(bytes.data() + i * size_of(type), type));
        }
        return values;
    }
    [[nodiscard]] bool gaps_intact(cudaDataType type, std::int64_t row, std::int64_t gap) const {
        const std::vector<std::byte> bytes = read_bytes();
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const auto place = static_cast<std::int64_t>(i / size_of(type)) % (row + gap);
            if (place >= row && bytes[i] != std::byte{0xFF}) return false;
        }
        return true;
    }
    void write_bytes(const std::vector<std::byte>& bytes) {
        resize(bytes.size());
        CHECK(cudaMemcpy(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
    }
    /// The current bytes, without a wait, because emulated memory is host memory. read_bytes() waits, and queued work may run.
    [[nodiscard]] std::vector<std::byte> peek() const { return {get(), get() + size_}; }
    [[nodiscard]] std::vector<std::byte> read_bytes() const {
        std::vector<std::byte> bytes(size_);
        CHECK(cudaMemcpy(bytes.data(), memory_, size_, cudaMemcpyDeviceToHost) == cudaSuccess);
        return bytes;
    }

    [[nodiscard]] static std::size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }
    /// Uses Cupola's conversions, which the emulator does not.
    static void append(std::vector<std::byte>& bytes, float value, cudaDataType type) {
        const auto add = [&bytes](const auto& narrow) {
            const auto* const from = reinterpret_cast<const std::byte*>(&narrow);
            bytes.insert(bytes.end(), from, from + sizeof narrow);
        };
        if (type == CUDA_R_32F) add(value);
        if (type == CUDA_R_16F) add(cupola::Float16(value));
        if (type == CUDA_R_16BF) add(cupola::BFloat16(value));
    }
    [[nodiscard]] static float element(const std::byte* from, cudaDataType type) {
        const auto as = [from](auto value) {
            std::memcpy(&value, from, sizeof value);
            return static_cast<float>(value);
        };
        return type == CUDA_R_32F ? as(0.0F) : type == CUDA_R_16F ? as(cupola::Float16()) : as(cupola::BFloat16());
    }

private:
    void* memory_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace emulator_tests
