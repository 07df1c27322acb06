// SPDX-License-Identifier: Apache-2.0
//
// The operations of `Host` and its plans, in float and bfloat16, which do not depend on the user's network. In a
// program that links to cupola::ops this header declares what the library contains: the classes of these operations are
// declared by ops/ and not defined, the functions and templates are `extern`. Without the library it includes all
// operations. compiled_training.hpp does the same for training.
#pragma once

#if !defined(CUPOLA_OPS) || defined(CUPOLA_COMPILING_OPS)
#include <cupola/host_operations.hpp>
#endif

#ifdef CUPOLA_OPS

#include <cstddef>
#include <memory>
#include <span>

#include <cupola/device/host.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/concatenation.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/dropout.hpp>
#include <cupola/ops/embedding.hpp>
#include <cupola/ops/from_bytes.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/linear.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/lrn_then_pool.hpp>
#include <cupola/ops/option_a_shortcut.hpp>
#include <cupola/ops/pool_then_lrn.hpp>
#include <cupola/ops/pooling.hpp>
#include <cupola/ops/upsampling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class T>
using Build = const BuildContext<Host, T>&;
template <class T>
using Node = std::unique_ptr<PlanNode<Host, T>>;

}}}  // namespace cupola::CUPOLA_ABI::impl

#define CUPOLA_TEMPLATE extern template
#define CUPOLA_ELEMENT float
#include <cupola/compiled_operations.hpp>
#undef CUPOLA_ELEMENT
#define CUPOLA_ELEMENT BFloat16
#include <cupola/compiled_operations.hpp>
#undef CUPOLA_ELEMENT
#undef CUPOLA_TEMPLATE

#endif
