// SPDX-License-Identifier: Apache-2.0
//
// The computation of a plan of the cuDNN stand-in: one convolution in one of its three directions, and the elementwise
// operations after it. All of it is read from the descriptors: extents, strides, types, padding.
#pragma once

#include <cudnn_values.h>

#include "../../standard.hpp"
#include "numbers.hpp"
#include "stream.hpp"

namespace cupola::emulator {

/// A tensor with four axes: n, c, height and width; for the weights of a convolution, outputs, inputs, height and width.
using Extents = std::array<std::int64_t, 4>;

struct CudnnTensor {
    std::int64_t id = 0;
    ElementKind kind{};
    Extents extents{}, strides{};
    std::int64_t alignment = 1;
    bool is_virtual = false;

    [[nodiscard]] std::int64_t elements() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
};

enum class CudnnDirection : std::uint8_t { forward, backward_data, backward_filter };

struct CudnnConvolution {
    CudnnDirection direction{};
    CudnnTensor x, w, y;
    std::array<std::int64_t, 2> strides{}, pads_before{}, pads_after{}, dilations{};
    bool flipped = false;
    float alpha = 1, beta = 0;

    /// As cuDNN, from the channels of the weights.
    [[nodiscard]] std::int64_t groups() const { return x.extents[1] / w.extents[1]; }
    [[nodiscard]] const CudnnTensor& result() const {
        return direction == CudnnDirection::forward ? y : direction == CudnnDirection::backward_data ? x : w;
    }
};

/// y = mode(x, b); there is no b where `binary` is false.
struct CudnnPointwise {
    cudnnPointwiseMode_t mode{};
    bool binary = false;
    CudnnTensor x = {}, b = {}, y = {};
};

/// The order and the precision in which an engine adds: engines differ in their results by these.
struct CudnnEngineKind {
    std::int64_t index = 0;
    enum class Factors : std::uint8_t { exact, tf32, bfloat16 } factors = Factors::exact;
    /// Sometimes rounds partial sums to 8 bits: coarser than half, so that the error is visible in half too.
    bool short_sums = false;
    enum class Order : std::uint8_t { forward, backward, random } order = Order::forward;
    /// Whether the weights, or their gradient, are stored as floats in the workspace.
    bool uses_workspace = false;
    /// Additional bytes of workspace, independent of the problem.
    std::int64_t more_workspace = 0;
    /// The time of a run by the device's clock.
    double seconds = 400e-6;
    /// Whether a request for a plan fails.
    bool refuses = false;
    std::vector<cudnnBackendNumericalNote_t> numerical_notes = {};
    std::vector<cudnnBackendBehaviorNote_t> behavior_notes = {};
};

struct CudnnProgram {
    CudnnConvolution convolution;
    std::vector<CudnnPointwise> after;
    CudnnEngineKind engine;

    [[nodiscard]] std::int64_t workspace_bytes() const;
    /// "convolution forward, 128 x 24 x 24 x 3 to 64 by 5 x 5": the samples, the extents and the window.
    [[nodiscard]] std::string name() const;
    [[nodiscard]] LibraryCost cost() const;
    /// The tensors that are not virtual: the inputs, and last the output.
    [[nodiscard]] std::vector<const CudnnTensor*> memory_tensors() const;
    /// Pointers in the order of memory_tensors().
    void run(const std::vector<void*>& pointers, std::byte* workspace) const;
};

}  // namespace cupola::emulator
