// SPDX-License-Identifier: Apache-2.0
//
// The backend for NVIDIA GPUs: the device `Cuda` and its operations, by cuDNN, cuBLASLt and Cupola's own kernels. For
// nvcc only: a file that g++ compiles includes at most <cupola/device/cuda.hpp>. Averaging by NCCL is a separate
// header.
#pragma once

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/algorithms.hpp>
#include <cupola/ops/cuda/batch_norm.hpp>
#include <cupola/ops/cuda/convolution.hpp>
#include <cupola/ops/cuda/dropout.hpp>
#include <cupola/ops/cuda/element_update.hpp>
#include <cupola/ops/cuda/elementwise.hpp>
#include <cupola/ops/cuda/elementwise_loss.hpp>
#include <cupola/ops/cuda/embedding.hpp>
#include <cupola/ops/cuda/fold_batch_norm.hpp>
#include <cupola/ops/cuda/from_bytes.hpp>
#include <cupola/ops/cuda/gradient_norm.hpp>
#include <cupola/ops/cuda/id_check.hpp>
#include <cupola/ops/cuda/linear.hpp>
#include <cupola/ops/cuda/local_response_norm.hpp>
#include <cupola/ops/cuda/option_a_shortcut.hpp>
#include <cupola/ops/cuda/peak_rates.hpp>
#include <cupola/ops/cuda/pool_with_lrn.hpp>
#include <cupola/ops/cuda/pooling.hpp>
#include <cupola/ops/cuda/rows.hpp>
#include <cupola/ops/cuda/softmax_cross_entropy.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/ops/cuda/upsampling.hpp>
#include <cupola/parallel/cuda/concat_mean.hpp>
#include <cupola/parallel/cuda/part_copies.hpp>
#include <cupola/parallel/cuda/queue.hpp>
#include <cupola/parallel/data_parallel.hpp>
