// SPDX-License-Identifier: Apache-2.0
//
// The options of `Cuda` in a training.
#pragma once

#include <memory>

#include <cupola/core/error.hpp>
#include <cupola/device/plan_choices.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CudaOptions {
    /// Whether matrix products and convolutions in float may round their factors to TF32, with 10 bits of significand,
    /// which tensor cores multiply eight times as fast as float32. Otherwise all computation is in float32.
    bool tf32 = false;
    /// The same for convolutions alone, which is PyTorch's default: its torch.backends.cudnn.allow_tf32 is true, and
    /// its precision of matrix products in float is "highest".
    bool tf32_convolutions = false;
    /// Restricts the choice to algorithms whose results have the same bits each time.
    bool deterministic = false;
    /// Seconds of the GPU for timing the candidates of one plan: the algorithms that cuDNN offers for a direction of a
    /// convolution, or cuBLASLt for a product. They are timed when the plan is made, once for all devices of one kind.
    /// Candidates for which no time is left are not used. The time until the GPU has reached its full clock, at most a
    /// quarter of a second, and the loading of the libraries' code do not count. With 0 nothing is timed, and the first
    /// candidate that the rules allow is used.
    double plan_seconds = 0.5;
    /// The algorithms of cuDNN and cuBLASLt to use. For an operation without an entry, the algorithm that is chosen is
    /// added. Copies of these options share it, and so do the devices of a training; another run uses the same
    /// algorithms if it begins with the same entries. If null, each device chooses for itself.
    std::shared_ptr<PlanChoices> plan_choices = std::make_shared<PlanChoices>();
    /// Whether the gradients of a layer's weights and of its input are computed side by side, on two streams. Each then
    /// has its own scratch memory. The bits are the same.
    bool side_by_side_gradients = true;
    /// Whether a kernel of Cupola that directly follows another kernel, of Cupola or of a library, may be launched
    /// before that one has ended, and waits on the GPU for its end (programmatic dependent launch, on GPUs and in code
    /// for compute capability 9.0 or later). The bits are the same.
    bool dependent_launch = false;
    /// Whether work whose parts are separated by a barrier of all blocks may be one kernel (a cooperative launch),
    /// where the GPU can hold all its blocks at a time. Otherwise each part is a kernel, and the log says so where a
    /// GPU cannot hold them. The bits are the same.
    bool cooperative_launch = true;
    /// Whether linear layers that are too small to fill a GPU, and the cross-entropy that follows them, are computed by
    /// one kernel of Cupola where nothing is queued between them, in place of products by cuBLASLt: see
    /// ops/cuda/impl/linear_chain.cuh. Sums are added in another order.
    bool linear_chains = true;
    /// The GPU that is device 0 of the training; its devices are GPUs with consecutive numbers. Processes on one
    /// machine that see the same GPUs each begin with a different one.
    int first_gpu = 0;
    /// The number of devices of a training that share a GPU: device d is on GPU first_gpu + d / devices_per_gpu. For
    /// testing trainings with several devices on a machine with fewer GPUs: such a training has the bits of one with a
    /// GPU per device, and is not faster. NcclAllReduce needs a GPU per device.
    int devices_per_gpu = 1;

    /// The GPU of a device of the training. Throws InvalidArgument for devices_per_gpu below 1.
    [[nodiscard]] int gpu_of(int device) const {
        require(devices_per_gpu >= 1, "devices_per_gpu must be 1 or more, not ", devices_per_gpu);
        return first_gpu + device / devices_per_gpu;
    }
};

}}  // namespace cupola::CUPOLA_ABI
