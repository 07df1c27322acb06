// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: the device `Host`, its operations through oneDNN, and averaging on the host.
#pragma once

#include <cupola/compiled_training.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/local_response_norm.hpp>
#include <cupola/ops/host/normed_pool.hpp>
#include <cupola/ops/host/pooled_norm.hpp>
#include <cupola/ops/onednn/activation.hpp>
#include <cupola/ops/onednn/adam_update.hpp>
#include <cupola/ops/onednn/batch_norm.hpp>
#include <cupola/ops/onednn/convolution.hpp>
#include <cupola/ops/onednn/dropout.hpp>
#include <cupola/ops/onednn/fold_batch_norm.hpp>
#include <cupola/ops/onednn/gradient_norm.hpp>
#include <cupola/ops/onednn/lamb_update.hpp>
#include <cupola/ops/onednn/lars_update.hpp>
#include <cupola/ops/onednn/linear.hpp>
#include <cupola/ops/onednn/machine_rates.hpp>
#include <cupola/ops/onednn/moving_average_update.hpp>
#include <cupola/ops/onednn/pad_shortcut.hpp>
#include <cupola/ops/onednn/pooling.hpp>
#include <cupola/ops/onednn/residual.hpp>
#include <cupola/ops/onednn/rms_prop_update.hpp>
#include <cupola/ops/onednn/sgd_update.hpp>
#include <cupola/ops/onednn/softmax_cross_entropy.hpp>
#include <cupola/ops/onednn/training_step.hpp>
#include <cupola/parallel/host_concat_mean.hpp>
#include <cupola/parallel/host_queue.hpp>
#include <cupola/tensor/algorithms.hpp>
