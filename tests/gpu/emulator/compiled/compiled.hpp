// SPDX-License-Identifier: Apache-2.0
//
// What the programs on emulated GPUs share: the templates of `Cuda` that depend on the element type alone, as compiled_operations.hpp and
// compiled_training.hpp have them of `Host`. Declared here, and defined in float.cpp, bfloat16.cpp and float16.cpp; each program compiles
// what is missing here. This is the precompiled header of all of them.
#pragma once

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers.hpp>
#include <cupola/losses.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/ops/weighted_targets.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/pipeline/pipeline_passes.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../../../standard.hpp"

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class T>
using EmulatedNode = std::unique_ptr<PlanNode<Cuda, T>>;

#define CUPOLA_EMULATED_NODE(TEMPLATE, T, name, ...) \
    TEMPLATE EmulatedNode<T> node_of<ops::name<Cuda, T>>(const BuildContext<Cuda, T>& __VA_OPT__(, ) __VA_ARGS__);

}  // namespace impl

#define CUPOLA_EMULATED(TEMPLATE, T)                                                                                  \
    namespace impl {                                                                                                  \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Add)                                                                            \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, BatchNorm, const BatchNormShape&)                                               \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, ColumnInput)                                                                    \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Concatenation)                                                                  \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Convolution, const ConvolutionShape&)                                           \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Dropout, const double&)                                                         \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Embedding, const EmbeddingShape&)                                               \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Fork)                                                                           \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, FromBytes, const BytesShape&)                                                   \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, GroupNorm, const GroupNormShape&)                                               \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Linear, const LinearShape&)                                                     \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, LocalResponseNorm, const LocalResponseNormShape&)                               \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, LrnThenPool, const LocalResponseNormShape&, const PoolingShape&)                \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, OptionAShortcut, const OptionAShortcutShape&)                                   \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Permutation, const PermutationShape&)                                           \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, PoolThenLrn, const PoolingShape&, const LocalResponseNormShape&)                \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Pooling, const PoolingShape&)                                                   \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Product)                                                                        \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Relu)                                                                           \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Resampling, const ResamplingShape&)                                             \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Softmax, const SoftmaxShape&)                                                   \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, TransposedConvolution, const TransposedConvolutionShape&)                       \
    CUPOLA_EMULATED_NODE(TEMPLATE, T, Upsampling, const UpsamplingShape&)                                             \
    }                                                                                                                 \
    TEMPLATE class Plan<Cuda, T>;                                                                                     \
    TEMPLATE class impl::DeviceWorker<Cuda, T>;                                                                       \
    TEMPLATE class impl::Plans<Cuda, T>;                                                                              \
    TEMPLATE std::string impl::first_not_finite(impl::DeviceWorker<Cuda, T>&, Plan<Cuda, T>&,                         \
                                                std::span<const LayerInfo>, const float*, const BatchView&,           \
                                                const RngKey&);                                                       \
    TEMPLATE class impl::LocalDevices<Cuda, T>;                                                                       \
    TEMPLATE class impl::RowsAgreement<Cuda, T>;                                                                      \
    TEMPLATE class impl::Replicas<Cuda, T>;                                                                           \
    TEMPLATE class impl::TakenBatches<Cuda, T>;                                                                       \
    TEMPLATE class impl::ReplicaLosses<Cuda, T>;                                                                      \
    TEMPLATE class impl::SynchronizedPasses<Cuda, T>;                                                                 \
    TEMPLATE class impl::PartWorkers<Cuda, T>;                                                                        \
    TEMPLATE class impl::PipelinePasses<Cuda, T>;                                                                     \
    TEMPLATE class impl::ReplicaPasses<Cuda, T>;                                                                      \
    TEMPLATE class impl::SyncBatchNormGroup<Cuda, T>;                                                                 \
    TEMPLATE class impl::StepReports<Cuda, T>;                                                                        \
    TEMPLATE class impl::SharedStatistics<Cuda, T>;                                                                   \
    TEMPLATE class impl::StepProbe<Cuda, T>;                                                                          \
    TEMPLATE class impl::StepFailure<Cuda, T>;                                                                        \
    TEMPLATE class impl::StepReader<Cuda, T>;                                                                         \
    TEMPLATE class impl::StepUpdate<Cuda, T>;                                                                         \
    TEMPLATE class impl::StepEngine<Cuda, T>;                                                                         \
    TEMPLATE class impl::Evaluator<Cuda, T>;                                                                          \
    TEMPLATE class impl::StateTransfer<Cuda, T>;                                                                      \
    TEMPLATE std::vector<float> impl::start_replicas(impl::Replicas<Cuda, T>&, std::uint64_t,                         \
                                                     std::span<const NamedInitializer>, int, FunctionRef<float(int)>, \
                                                     FunctionRef<std::string_view(int)>);                             \
    TEMPLATE void impl::queue_check(impl::Replicas<Cuda, T>&, int);                                                   \
    TEMPLATE void impl::check_agreement(impl::Replicas<Cuda, T>&, impl::Peers&, std::int64_t, std::span<const float>);

#define CUPOLA_EMULATED_UPDATE(TEMPLATE, O)                                  \
    TEMPLATE void update_by_formula<O, Cuda>(const O&, const Update<Cuda>&); \
    TEMPLATE void write_constants_by_formula<O, Cuda>(const O&, const Update<Cuda>&, ConstantsWriter&);

// And those without an element type.
#define CUPOLA_EMULATED_TRAINING(TEMPLATE)                                     \
    namespace impl {                                                           \
    CUPOLA_EMULATED_UPDATE(TEMPLATE, Sgd)                                      \
    CUPOLA_EMULATED_UPDATE(TEMPLATE, Adam)                                     \
    TEMPLATE class ReplicaGradients<Cuda>;                                     \
    TEMPLATE class RowsPolicyOf<ConcatMean, Cuda>;                             \
    }                                                                          \
    TEMPLATE class ops::SoftmaxCrossEntropy<Cuda, float, impl::LabelTargets>;  \
    TEMPLATE class ops::SoftmaxCrossEntropy<Cuda, float, impl::SoftTargets<>>; \
    TEMPLATE class ops::SoftmaxCrossEntropy<Cuda, float, impl::WeightedLabelTargets<>>;

CUPOLA_EMULATED(extern template, float)
CUPOLA_EMULATED(extern template, BFloat16)
CUPOLA_EMULATED(extern template, Float16)
CUPOLA_EMULATED_TRAINING(extern template)

}}  // namespace cupola::CUPOLA_ABI
