// SPDX-License-Identifier: Apache-2.0
//
// What most programs need of Cupola. Include a backend as well: <cupola/host.hpp>. Included by name, where they are
// used, are the readers of files (<cupola/data/open.hpp>), and of the floors below them:
//
//   <cupola/data/augmentation.hpp>, <cupola/data/random_crop_flip.hpp>, <cupola/models/tutorial_augmentation.hpp>
//   <cupola/layers.hpp>                   all layers: also GELU, LayerNorm, ConvTranspose2d, Upsample2d, Embedding
//   <cupola/layers/on_device.hpp>         a layer on another device than its network's
//   <cupola/losses.hpp>                   all losses: also MeanSquaredError, those with weights, and one per output
//   <cupola/metrics.hpp>                  the metrics of evaluations; <cupola/metrics/metric.hpp> for one of your own
//   <cupola/net/branches.hpp>             Concat, Add, Multiply, and values with names: Keep, AddFrom, FromInput ...
//   <cupola/net/frozen.hpp>               a network of which a part is not trained
//   <cupola/net/recompute.hpp>            a network of which blocks are computed again, for less memory
//   <cupola/net/summary.hpp>              a network as a table
//   <cupola/net/tied.hpp>                 layers that share their parameters
//   <cupola/optim/clipped.hpp>            an optimiser whose gradients are clipped
//   <cupola/optimizers.hpp>               all optimisers: also Adagrad, Adamax, Lamb, Lars, NesterovVelocity, RmsProp
//   <cupola/optim/epochs.hpp>             learning rates with boundaries in epochs
//   <cupola/optim/rate_scaling.hpp>       a learning rate for a larger global batch
//   <cupola/parallel/compressed.hpp>      gradients that are averaged in bfloat16
//   <cupola/parallel/nccl_all_reduce.hpp>  NcclAllReduce without NCCL; <cupola/nccl.hpp> has the rest of it too
//   <cupola/parallel/inspection.hpp>      steps whose values are inspected
//   <cupola/parallel/pipeline.hpp>        trainings of networks that are cut into parts
//   <cupola/parallel/state_transfer.hpp>  state() and restore() of a training
//   <cupola/parallel/synchronized.hpp>    batch normalisation over all replicas
//   <cupola/train/stop_on_signal.hpp>     a program that is asked to end
#pragma once

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/local_response_norm.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/pointwise.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/layers/tanh.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/weight_decay.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/adam_w.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/optim/schedule.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/tensor/tensor.hpp>
#include <cupola/train/evaluate.hpp>
#include <cupola/train/fit.hpp>
#include <cupola/train/log_every.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/progress.hpp>
#include <cupola/train/stop_when.hpp>
