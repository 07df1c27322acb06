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

#include <cupola/models/unet.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/rows.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/kinds/centre_updates.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../golden/golden.hpp"
#include "../instructions.hpp"
#include "../layers/layer_run.hpp"
#include "../loss/loss_run.hpp"
#include "../net/graph_run.hpp"
#include "../ops/convolution_cases.hpp"
#include "../ops/convolution_problem.hpp"
#include "../ops/operation_run.hpp"
#include "../ops/weighted_operation.hpp"
#include "../optim/each_optimizer.hpp"
#include "../optim/updated_tensors.hpp"
#include "../parallel/kinds/kind_training.hpp"
#include "../parallel/kinds/rules.hpp"
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
