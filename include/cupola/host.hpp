// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: the device `Host`, its operations through oneDNN, and averaging on the host.
#pragma once

#ifdef CUPOLA_SEPARATE_COMPILATION
#include <cupola/compiled_training.hpp>
#else
#include <cupola/host_operations.hpp>
#endif
#include <cupola/device/host.hpp>
#include <cupola/ops/host/element_update.hpp>
#include <cupola/ops/host/elementwise_loss.hpp>
#include <cupola/ops/host/gradient_norm.hpp>
#include <cupola/ops/host/id_check.hpp>
#include <cupola/ops/host/peak_rates.hpp>
#include <cupola/ops/host/softmax_cross_entropy.hpp>
#include <cupola/ops/host/training_step.hpp>
#include <cupola/parallel/host/concat_mean.hpp>
#include <cupola/parallel/host/queue.hpp>
#include <cupola/tensor/algorithms.hpp>
