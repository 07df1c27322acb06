// SPDX-License-Identifier: Apache-2.0
//
// The networks of --model and --precision on --device, each compiled in a file of its own.
#pragma once

#include <string>

#include "run_folder.hpp"

namespace cifar10 {

using Model = int(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                  const std::string& optimizer);

Model run_tutorial, run_tutorial_bf16, run_resnet, run_resnet_bf16;
/// Only a program that is built with CUDA has these: ask `cuda_model` for them.
Model run_tutorial_cuda, run_tutorial_bf16_cuda, run_resnet_cuda, run_resnet_bf16_cuda;

/// Throws InvalidArgument where this program was built without CUDA, or without what --averaging names, and DeviceError
/// where this machine has no driver or no GPU.
void require_cuda(const TrainOptions& options);

/// The network for GPUs. Throws as `require_cuda` does where this program has none.
Model* cuda_model(bool tutorial, bool in_float);

}  // namespace cifar10
