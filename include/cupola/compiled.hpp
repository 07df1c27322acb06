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
#include <cupola/ops/host/local_response_norm.hpp>
#include <cupola/ops/host/normed_pool.hpp>
#include <cupola/ops/host/pooled_norm.hpp>
#include <cupola/ops/onednn/activation.hpp>
#include <cupola/ops/onednn/batch_norm.hpp>
#include <cupola/ops/onednn/convert.hpp>
#include <cupola/ops/onednn/convolution.hpp>
#include <cupola/ops/onednn/dropout.hpp>
#include <cupola/ops/onednn/fold_batch_norm.hpp>
#include <cupola/ops/onednn/linear.hpp>
#include <cupola/ops/onednn/pad_shortcut.hpp>
#include <cupola/ops/onednn/pooling.hpp>
#include <cupola/ops/onednn/residual.hpp>

namespace cupola::inline CUPOLA_ABI {

#define CUPOLA_MADE_OPERATION(keyword, Name, T) \
    keyword ops::Name<Host, T> make_operation<ops::Name<Host, T>>(const Site<Host, T>&, const Name##Shape&);
#define CUPOLA_STAGE(keyword, Name, T)                                                   \
    keyword std::unique_ptr<Stage<Host, T>> impl::stage_of<ops::Name<Host, T>, Host, T>( \
        ops::Name<Host, T>(*)(const Site<Host, T>&), const Site<Host, T>&);

/// `keyword` is `extern template`, or `template`.
#define CUPOLA_COMPILED_PLAN(keyword, T)                                                                           \
    CUPOLA_MADE_OPERATION(keyword, BatchNorm, T)                                                                   \
    CUPOLA_MADE_OPERATION(keyword, Convolution, T)                                                                 \
    CUPOLA_MADE_OPERATION(keyword, Linear, T)                                                                      \
    CUPOLA_MADE_OPERATION(keyword, LocalResponseNorm, T)                                                           \
    CUPOLA_MADE_OPERATION(keyword, Pooling, T)                                                                     \
    CUPOLA_STAGE(keyword, Add, T)                                                                                  \
    CUPOLA_STAGE(keyword, BatchNorm, T)                                                                            \
    CUPOLA_STAGE(keyword, Convolution, T)                                                                          \
    CUPOLA_STAGE(keyword, Dropout, T)                                                                              \
    CUPOLA_STAGE(keyword, Fork, T)                                                                                 \
    CUPOLA_STAGE(keyword, Linear, T)                                                                               \
    CUPOLA_STAGE(keyword, LocalResponseNorm, T)                                                                    \
    CUPOLA_STAGE(keyword, PadShortcut, T)                                                                          \
    CUPOLA_STAGE(keyword, Pooling, T)                                                                              \
    CUPOLA_STAGE(keyword, Relu, T)                                                                                 \
    keyword std::unique_ptr<Stage<Host, T>> impl::make_pair_stage<Host, T>(std::span<const Row>, const StageInfo&, \
                                                                           const Site<Host, T>&);                  \
    keyword class Plan<Host, T>;

CUPOLA_COMPILED_PLAN(extern template, float)
CUPOLA_COMPILED_PLAN(extern template, BFloat16)

}  // namespace cupola::inline CUPOLA_ABI

#endif
