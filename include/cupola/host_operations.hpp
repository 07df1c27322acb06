// SPDX-License-Identifier: Apache-2.0
//
// All operations that layers use on `Host`. A separately compiled program includes it only
// to use such an operation without a network.
#pragma once

#include <cupola/ops/host/batch_norm.hpp>
#include <cupola/ops/host/convolution.hpp>
#include <cupola/ops/host/dropout.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/embedding.hpp>
#include <cupola/ops/host/fold_batch_norm.hpp>
#include <cupola/ops/host/from_bytes.hpp>
#include <cupola/ops/host/linear.hpp>
#include <cupola/ops/host/local_response_norm.hpp>
#include <cupola/ops/host/option_a_shortcut.hpp>
#include <cupola/ops/host/pool_with_lrn.hpp>
#include <cupola/ops/host/pooling.hpp>
#include <cupola/ops/host/rows.hpp>
#include <cupola/ops/host/upsampling.hpp>
