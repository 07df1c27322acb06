// SPDX-License-Identifier: Apache-2.0
//
// The headers that the tests of typed_tests.cmake include, so that one translation unit can contain several tests, each in
// its own namespace: nvcc reads these headers three times per unit. A header that is missing here is read inside the
// namespace of the first test that includes it, and the compiler then reports unknown names in that header.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/flatten.hpp>
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
#include <cupola/models/unet.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/concatenation.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/lrn_then_pool.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/ops/pointwise.hpp>
#include <cupola/ops/pool_then_lrn.hpp>
#include <cupola/optim/adagrad.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/adam_w.hpp>
#include <cupola/optim/adamax.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/lamb.hpp>
#include <cupola/optim/rms_prop.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../golden/average_pool2d.hpp"
#include "../golden/batch_norm.hpp"
#include "../golden/conv2d.hpp"
#include "../golden/cross_entropy.hpp"
#include "../golden/linear.hpp"
#include "../golden/local_response_norm.hpp"
#include "../golden/max_pool2d.hpp"
#include "../golden/relu.hpp"
#include "../instructions.hpp"
#include "../layers/layer_run.hpp"
#include "../net/graph_run.hpp"
#include "../ops/convolution_problem.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/batch_norm.hpp"
#include "../reference/compare.hpp"
#include "../reference/convolution.hpp"
#include "../reference/dropout.hpp"
#include "../reference/linear.hpp"
#include "../reference/local_response_norm.hpp"
#include "../reference/pooling.hpp"
#include "../reference/relu.hpp"
#include "../reference/softmax_cross_entropy.hpp"
#include "../throws_with.hpp"
