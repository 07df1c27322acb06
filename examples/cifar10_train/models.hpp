// SPDX-License-Identifier: Apache-2.0
//
// The networks of --model and --precision, each compiled in a file of its own.
#pragma once

#include <string>

#include "run_folder.hpp"

namespace cifar10 {

int run_tutorial(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer);
int run_tutorial_bf16(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer);
int run_resnet(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer);
int run_resnet_bf16(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer);

}  // namespace cifar10
