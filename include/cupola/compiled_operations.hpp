// SPDX-License-Identifier: Apache-2.0
//
// The operations of `Host` and its plans, in float and bfloat16, which do not depend on the user's network. In a
// program that is compiled with CUPOLA_SEPARATE_COMPILATION this header declares what src.hpp defines: the classes of
// the operations are declared by ops/ and not defined, the templates are `extern`. Otherwise it includes all
// operations. compiled_training.hpp does the same for training.
#pragma once

#if !defined(CUPOLA_SEPARATE_COMPILATION) || defined(CUPOLA_SRC)
#include <cupola/host_operations.hpp>
#endif

#ifdef CUPOLA_SEPARATE_COMPILATION

#include <memory>

#include <cupola/device/host.hpp>
#include <cupola/layers.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/segment_passes.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/ops/host/elementwise.hpp>

/// The only list of the operations of `Host` that are compiled once: LISTED(name in ops, arguments of its constructor
/// after the BuildContext). A layer on an operation that is missing here does not compile in programs that are compiled
/// separately and do not include the operation's header in ops/host/.
#define CUPOLA_HOST_OPERATIONS(LISTED)                                      \
    LISTED(Add)                                                             \
    LISTED(BatchNorm, const BatchNormShape&)                                \
    LISTED(ColumnInput)                                                     \
    LISTED(Concatenation)                                                   \
    LISTED(Convolution, const ConvolutionShape&)                            \
    LISTED(Dropout, const double&)                                          \
    LISTED(Embedding, const EmbeddingShape&)                                \
    LISTED(Fork)                                                            \
    LISTED(FromBytes, const BytesShape&)                                    \
    LISTED(GroupNorm, const GroupNormShape&)                                \
    LISTED(Linear, const LinearShape&)                                      \
    LISTED(LocalResponseNorm, const LocalResponseNormShape&)                \
    LISTED(LrnThenPool, const LocalResponseNormShape&, const PoolingShape&) \
    LISTED(OptionAShortcut, const OptionAShortcutShape&)                    \
    LISTED(Permutation, const PermutationShape&)                            \
    LISTED(PoolThenLrn, const PoolingShape&, const LocalResponseNormShape&) \
    LISTED(Pooling, const PoolingShape&)                                    \
    LISTED(PRelu, const PReluShape&)                                        \
    LISTED(Product)                                                         \
    LISTED(Relu)                                                            \
    LISTED(Resampling, const ResamplingShape&)                              \
    LISTED(SharedDropout, const SharedDropoutShape&)                        \
    LISTED(Softmax, const SoftmaxShape&)                                    \
    LISTED(TransposedConvolution, const TransposedConvolutionShape&)        \
    LISTED(Upsampling, const UpsamplingShape&)

/// The only list of the formulas of layers (layers/pointwise.hpp) that are compiled once. Another formula is compiled
/// where it is used.
#define CUPOLA_HOST_FORMULAS(LISTED) \
    LISTED(EluFormula)               \
    LISTED(GeluFormula)              \
    LISTED(GeluTanhFormula)          \
    LISTED(HardSigmoidFormula)       \
    LISTED(HardSwishFormula)         \
    LISTED(LeakyReluFormula)         \
    LISTED(MishFormula)              \
    LISTED(Relu6Formula)             \
    LISTED(SigmoidFormula)           \
    LISTED(SiluFormula)              \
    LISTED(SoftplusFormula)          \
    LISTED(TanhFormula)

// In the file that includes src.hpp these define the templates; elsewhere they declare them.
#ifdef CUPOLA_SRC_FLOAT
#define CUPOLA_FLOAT_TEMPLATE template
#else
#define CUPOLA_FLOAT_TEMPLATE extern template
#endif
#ifdef CUPOLA_SRC_BFLOAT16
#define CUPOLA_BFLOAT16_TEMPLATE template
#else
#define CUPOLA_BFLOAT16_TEMPLATE extern template
#endif

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

#define CUPOLA_LISTED(name, ...) \
    template <>                  \
    inline constexpr bool compiled_for<ops::name, Host> = true;
CUPOLA_HOST_OPERATIONS(CUPOLA_LISTED)
#undef CUPOLA_LISTED

template <class T>
using Node = std::unique_ptr<PlanNode<Host, T>>;

#define CUPOLA_LISTED(name, ...)                                                                                      \
    CUPOLA_FLOAT_TEMPLATE Node<float> node_of<ops::name<Host, float>>(const BuildContext<Host, float>& __VA_OPT__(, ) \
                                                                          __VA_ARGS__);                               \
    CUPOLA_BFLOAT16_TEMPLATE Node<BFloat16> node_of<ops::name<Host, BFloat16>>(                                       \
        const BuildContext<Host, BFloat16>& __VA_OPT__(, ) __VA_ARGS__);
CUPOLA_HOST_OPERATIONS(CUPOLA_LISTED)
#undef CUPOLA_LISTED

#define CUPOLA_LISTED(name)                                                                                        \
    CUPOLA_FLOAT_TEMPLATE Node<float> node_of<ops::Pointwise<Host, float, name>>(const BuildContext<Host, float>&, \
                                                                                 const name&);                     \
    CUPOLA_BFLOAT16_TEMPLATE Node<BFloat16> node_of<ops::Pointwise<Host, BFloat16, name>>(                         \
        const BuildContext<Host, BFloat16>&, const name&);
CUPOLA_HOST_FORMULAS(CUPOLA_LISTED)
#undef CUPOLA_LISTED

}  // namespace impl

CUPOLA_FLOAT_TEMPLATE class Plan<Host, float>;
CUPOLA_BFLOAT16_TEMPLATE class Plan<Host, BFloat16>;

}}  // namespace cupola::CUPOLA_ABI

#undef CUPOLA_HOST_OPERATIONS
#undef CUPOLA_HOST_FORMULAS

#endif
