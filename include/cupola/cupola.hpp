// SPDX-License-Identifier: Apache-2.0
//
// All of Cupola except its backends and its file readers. Include a backend as well: <cupola/host.hpp>. Readers are
// included where they are used: <cupola/data/open.hpp>.
#pragma once

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/augmentation.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/layers.hpp>
#include <cupola/losses.hpp>
#include <cupola/metrics.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/epochs.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/optim/rate_scaling.hpp>
#include <cupola/optim/schedule.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/tensor/tensor.hpp>
#include <cupola/train/evaluate.hpp>
#include <cupola/train/fit.hpp>
#include <cupola/train/log_every.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/progress.hpp>
#include <cupola/train/stop_on_signal.hpp>
#include <cupola/train/stop_when.hpp>
