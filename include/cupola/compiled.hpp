// SPDX-License-Identifier: Apache-2.0
//
// What cupola::ops has compiled of the templates that do not depend on a user's network: the operations of `Host` and
// its plans, in float and bfloat16. Declared here to those who link to it; its sources instantiate the same lists.
// compiled_training.hpp has what training needs beside them.
#pragma once

#ifdef CUPOLA_OPS

#include <cstddef>
#include <memory>
#include <span>

#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/ops/host/batch_norm.hpp>
#include <cupola/ops/host/convolution.hpp>
#include <cupola/ops/host/dropout.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/fold_batch_norm.hpp>
#include <cupola/ops/host/linear.hpp>
#include <cupola/ops/host/local_response_norm.hpp>
#include <cupola/ops/host/lrn_then_pool.hpp>
#include <cupola/ops/host/option_a_shortcut.hpp>
#include <cupola/ops/host/pool_then_lrn.hpp>
#include <cupola/ops/host/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

#define CUPOLA_MADE_OPERATION(keyword, Name, T) \
    keyword ops::Name<Host, T> make_operation<ops::Name<Host, T>>(const BuildContext<Host, T>&, const Name##Shape&);
#define CUPOLA_NODE(keyword, Name, T)                                                      \
    keyword std::unique_ptr<PlanNode<Host, T>> impl::node_of<ops::Name<Host, T>, Host, T>( \
        ops::Name<Host, T>(*)(const BuildContext<Host, T>&), const BuildContext<Host, T>&);

#define CUPOLA_FUSED_NODE(keyword, Row, T)                                                         \
    keyword std::unique_ptr<PlanNode<Host, T>> impl::make_fused_node<impl::fusions::Row, Host, T>( \
        std::span<const LayerInfo>, const NodeInfo&, const BuildContext<Host, T>&);

/// `keyword` is `extern template`, or `template`.
#define CUPOLA_COMPILED_PLAN(keyword, T)                 \
    CUPOLA_MADE_OPERATION(keyword, BatchNorm, T)         \
    CUPOLA_MADE_OPERATION(keyword, Convolution, T)       \
    CUPOLA_MADE_OPERATION(keyword, Linear, T)            \
    CUPOLA_MADE_OPERATION(keyword, LocalResponseNorm, T) \
    CUPOLA_MADE_OPERATION(keyword, Pooling, T)           \
    CUPOLA_NODE(keyword, Add, T)                         \
    CUPOLA_NODE(keyword, BatchNorm, T)                   \
    CUPOLA_NODE(keyword, Convolution, T)                 \
    CUPOLA_NODE(keyword, Dropout, T)                     \
    CUPOLA_NODE(keyword, Fork, T)                        \
    CUPOLA_NODE(keyword, Linear, T)                      \
    CUPOLA_NODE(keyword, LocalResponseNorm, T)           \
    CUPOLA_NODE(keyword, OptionAShortcut, T)             \
    CUPOLA_NODE(keyword, Pooling, T)                     \
    CUPOLA_NODE(keyword, Relu, T)                        \
    CUPOLA_FUSED_NODE(keyword, LrnThenPool, T)           \
    CUPOLA_FUSED_NODE(keyword, PoolThenLrn, T)           \
    keyword class Plan<Host, T>;

CUPOLA_COMPILED_PLAN(extern template, float)
CUPOLA_COMPILED_PLAN(extern template, BFloat16)

}  // namespace cupola::inline CUPOLA_ABI

#endif
