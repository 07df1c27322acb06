// SPDX-License-Identifier: Apache-2.0
//
// The headers that the tests of typed_tests.cmake include, so that one translation unit can contain several tests, each in
// its own namespace: nvcc reads these headers three times per unit. A header that is missing here is read inside the
// namespace of the first test that includes it, and the compiler then reports unknown names in that header.
#pragma once

#include "../test.hpp"

#include <concepts>
#include <deque>
#include <random>

#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/leaky_relu.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/local_response_norm.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/layers/pointwise.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/layers/silu.hpp>
#include <cupola/layers/upsample2d.hpp>
#include <cupola/losses.hpp>
#include <cupola/models/unet.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/concatenation.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/lrn_then_pool.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/pointwise.hpp>
#include <cupola/ops/pool_then_lrn.hpp>
#include <cupola/ops/rows.hpp>
#include <cupola/optim/adagrad.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/adam_w.hpp>
#include <cupola/optim/adamax.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/lamb.hpp>
#include <cupola/optim/lars.hpp>
#include <cupola/optim/nesterov_velocity.hpp>
#include <cupola/optim/rms_prop.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../golden/golden.hpp"
#include "../instructions.hpp"
#include "../layers/layer_run.hpp"
#include "../loss/loss_run.hpp"
#include "../net/graph_run.hpp"
#include "../ops/convolution_cases.hpp"
#include "../ops/convolution_problem.hpp"
#include "../ops/fused_relu.hpp"
#include "../ops/operation_run.hpp"
#include "../optim/updated_tensors.hpp"
#include "../reference/batch_norm.hpp"
#include "../reference/compare.hpp"
#include "../reference/convolution.hpp"
#include "../reference/cross_entropy.hpp"
#include "../reference/dropout.hpp"
#include "../reference/elementwise_loss.hpp"
#include "../reference/linear.hpp"
#include "../reference/local_response_norm.hpp"
#include "../reference/pooling.hpp"
#include "../reference/relu.hpp"
#include "../reference/softmax_cross_entropy.hpp"
#include "../throws_with.hpp"
