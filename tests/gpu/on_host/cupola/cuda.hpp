// SPDX-License-Identifier: Apache-2.0
//
// The operations of `Cuda` whose kernels run on the host too: see device/cuda.hpp in this folder.
#pragma once

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/activation.hpp>
#include <cupola/ops/cudnn/adam_update.hpp>
#include <cupola/ops/cudnn/gradient_norm.hpp>
#include <cupola/ops/cudnn/lamb_update.hpp>
#include <cupola/ops/cudnn/lars_update.hpp>
#include <cupola/ops/cudnn/local_response_norm.hpp>
#include <cupola/ops/cudnn/moving_average_update.hpp>
#include <cupola/ops/cudnn/normed_pool.hpp>
#include <cupola/ops/cudnn/pad_shortcut.hpp>
#include <cupola/ops/cudnn/pooled_norm.hpp>
#include <cupola/ops/cudnn/pooling.hpp>
#include <cupola/ops/cudnn/residual.hpp>
#include <cupola/ops/cudnn/rms_prop_update.hpp>
#include <cupola/ops/cudnn/sgd_update.hpp>
#include <cupola/parallel/cuda_concat_mean.hpp>
#include <cupola/ops/cudnn/algorithms.hpp>
