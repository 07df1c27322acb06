// SPDX-License-Identifier: Apache-2.0
//
// The backend for NVIDIA GPUs: the device `Cuda` and its operations, by cuDNN, cuBLASLt and kernels of our own. For
// nvcc: a file that g++ compiles includes <cupola/device/cuda.hpp> at most. Averaging by NCCL is included beside it.
#pragma once

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/activation.hpp>
#include <cupola/ops/cudnn/adam_update.hpp>
#include <cupola/ops/cudnn/algorithms.hpp>
#include <cupola/ops/cudnn/batch_norm.hpp>
#include <cupola/ops/cudnn/convert.hpp>
#include <cupola/ops/cudnn/convolution.hpp>
#include <cupola/ops/cudnn/dropout.hpp>
#include <cupola/ops/cudnn/fold_batch_norm.hpp>
#include <cupola/ops/cudnn/gradient_norm.hpp>
#include <cupola/ops/cudnn/lamb_update.hpp>
#include <cupola/ops/cudnn/lars_update.hpp>
#include <cupola/ops/cudnn/linear.hpp>
#include <cupola/ops/cudnn/local_response_norm.hpp>
#include <cupola/ops/cudnn/machine_rates.hpp>
#include <cupola/ops/cudnn/moving_average_update.hpp>
#include <cupola/ops/cudnn/normed_pool.hpp>
#include <cupola/ops/cudnn/pad_shortcut.hpp>
#include <cupola/ops/cudnn/pooled_norm.hpp>
#include <cupola/ops/cudnn/pooling.hpp>
#include <cupola/ops/cudnn/residual.hpp>
#include <cupola/ops/cudnn/rms_prop_update.hpp>
#include <cupola/ops/cudnn/sgd_update.hpp>
#include <cupola/ops/cudnn/softmax_cross_entropy.hpp>
#include <cupola/ops/cudnn/training_step.hpp>
#include <cupola/parallel/cuda_concat_mean.hpp>
#include <cupola/parallel/cuda_queue.hpp>
#include <cupola/parallel/data_parallel.hpp>
