// SPDX-License-Identifier: Apache-2.0
//
// The other half of compiled_operations.hpp: the templates for training on `Host` that do not depend on the network.
#pragma once

#include <cupola/compiled_operations.hpp>

#ifdef CUPOLA_SEPARATE_COMPILATION

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/data/in_memory.hpp>
#include <cupola/losses.hpp>
#include <cupola/ops/host/element_update.hpp>
#include <cupola/ops/host/elementwise_loss.hpp>
#include <cupola/ops/host/id_check.hpp>
#include <cupola/ops/host/peak_rates.hpp>
#include <cupola/ops/host/softmax_cross_entropy.hpp>
#include <cupola/ops/host/training_step.hpp>
#include <cupola/ops/weighted_targets.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/host/concat_mean.hpp>
#include <cupola/parallel/host/queue.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/pipeline/pipeline_passes.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The updates of the optimisers of a list.
template <class List>
struct CompiledUpdates;
template <class... O>
struct CompiledUpdates<TypeList<O...>> {
    template <class One>
    static constexpr bool has = (std::same_as<One, O> || ...);
    template <class One>
    [[nodiscard]] static constexpr std::size_t number_of() {
        const bool is[] = {std::same_as<One, O>...};
        std::size_t number = 0;
        while (!is[number]) ++number;
        return number;
    }
    /// update_by_formula(*optimizer, u) for the optimiser with this number in the list.
    static void update(std::size_t number, const void* optimizer, const Update<Host>& u);
    /// The same for write_constants_by_formula.
    static void write_constants(std::size_t number, const void* optimizer, const Update<Host>& u, ConstantsWriter& to);
};

template <class... O>
void CompiledUpdates<TypeList<O...>>::update(std::size_t number, const void* optimizer, const Update<Host>& u) {
    using Call = void (*)(const void*, const Update<Host>&);
    static constexpr Call calls[] = {
        [](const void* o, const Update<Host>& of) { update_by_formula(*static_cast<const O*>(o), of); }...};
    calls[number](optimizer, u);
}
template <class... O>
void CompiledUpdates<TypeList<O...>>::write_constants(std::size_t number, const void* optimizer, const Update<Host>& u,
                                                      ConstantsWriter& to) {
    using Call = void (*)(const void*, const Update<Host>&, ConstantsWriter&);
    static constexpr Call calls[] = {[](const void* o, const Update<Host>& of, ConstantsWriter& out) {
        write_constants_by_formula(*static_cast<const O*>(o), of, out);
    }...};
    calls[number](optimizer, u, to);
}

template <class O>
    requires(CompiledUpdates<Optimizers>::has<O>)
struct FormulaUpdate<O, Host> {
    static void apply(const O& optimizer, const Update<Host>& u) {
        CompiledUpdates<Optimizers>::update(CompiledUpdates<Optimizers>::number_of<O>(), &optimizer, u);
    }
    static void write_constants(const O& optimizer, const Update<Host>& u, ConstantsWriter& to) {
        CompiledUpdates<Optimizers>::write_constants(CompiledUpdates<Optimizers>::number_of<O>(), &optimizer, u, to);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl

namespace cupola { inline namespace CUPOLA_ABI {

/// The only list of the templates for training on `Host` that are compiled once per element type of activations.
#define CUPOLA_HOST_TRAINING(TEMPLATE, T)                                                                             \
    TEMPLATE class impl::DeviceWorker<Host, T>;                                                                       \
    TEMPLATE class impl::Plans<Host, T>;                                                                              \
    TEMPLATE std::string impl::first_not_finite(impl::DeviceWorker<Host, T>&, Plan<Host, T>&,                         \
                                                std::span<const LayerInfo>, const float*, const BatchView&,           \
                                                const RngKey&);                                                       \
    TEMPLATE class impl::LocalDevices<Host, T>;                                                                       \
    TEMPLATE class impl::RowsAgreement<Host, T>;                                                                      \
    TEMPLATE class impl::Replicas<Host, T>;                                                                           \
    TEMPLATE class impl::TakenBatches<Host, T>;                                                                       \
    TEMPLATE class impl::ReplicaLosses<Host, T>;                                                                      \
    TEMPLATE class impl::SynchronizedPasses<Host, T>;                                                                 \
    TEMPLATE class impl::PartWorkers<Host, T>;                                                                        \
    TEMPLATE class impl::PipelinePasses<Host, T>;                                                                     \
    TEMPLATE class impl::ReplicaPasses<Host, T>;                                                                      \
    TEMPLATE class impl::SyncBatchNormGroup<Host, T>;                                                                 \
    TEMPLATE class impl::StepReports<Host, T>;                                                                        \
    TEMPLATE class impl::SharedStatistics<Host, T>;                                                                   \
    TEMPLATE class impl::StepProbe<Host, T>;                                                                          \
    TEMPLATE class impl::StepFailure<Host, T>;                                                                        \
    TEMPLATE class impl::StepReader<Host, T>;                                                                         \
    TEMPLATE class impl::StepUpdate<Host, T>;                                                                         \
    TEMPLATE class impl::StepEngine<Host, T>;                                                                         \
    TEMPLATE class impl::Evaluator<Host, T>;                                                                          \
    TEMPLATE class impl::StateTransfer<Host, T>;                                                                      \
    TEMPLATE std::vector<float> impl::start_replicas(impl::Replicas<Host, T>&, std::uint64_t,                         \
                                                     std::span<const NamedInitializer>, int, FunctionRef<float(int)>, \
                                                     FunctionRef<std::string_view(int)>);                             \
    TEMPLATE struct ops::MeasurePeakRates<Host, T>;                                                                   \
    TEMPLATE void impl::queue_check(impl::Replicas<Host, T>&, int);                                                   \
    TEMPLATE void impl::check_agreement(impl::Replicas<Host, T>&, impl::Peers&, std::int64_t, std::span<const float>);
CUPOLA_HOST_TRAINING(CUPOLA_FLOAT_TEMPLATE, float)
CUPOLA_HOST_TRAINING(CUPOLA_BFLOAT16_TEMPLATE, BFloat16)
#undef CUPOLA_HOST_TRAINING

// And of those without an element type.
CUPOLA_FLOAT_TEMPLATE struct impl::CompiledUpdates<Optimizers>;
CUPOLA_FLOAT_TEMPLATE class impl::ReplicaGradients<Host>;
CUPOLA_FLOAT_TEMPLATE class impl::RowsPolicyOf<ConcatMean, Host>;
CUPOLA_FLOAT_TEMPLATE void MovingAverage::update<Host>(HostContext&, float*, const float*, std::int64_t,
                                                       std::int64_t) const;
CUPOLA_FLOAT_TEMPLATE class ops::ElementwiseLoss<Host, impl::AbsoluteErrorFormula>;
CUPOLA_FLOAT_TEMPLATE class ops::ElementwiseLoss<Host, impl::BinaryCrossEntropyFormula>;
CUPOLA_FLOAT_TEMPLATE class ops::ElementwiseLoss<Host, impl::ChannelBinaryCrossEntropyFormula>;
CUPOLA_FLOAT_TEMPLATE class ops::ElementwiseLoss<Host, impl::HuberFormula>;
CUPOLA_FLOAT_TEMPLATE class ops::ElementwiseLoss<Host, impl::SquaredErrorFormula>;
CUPOLA_FLOAT_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::LabelTargets>;
CUPOLA_FLOAT_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::SoftTargets<>>;
CUPOLA_FLOAT_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::WeightedLabelTargets<>>;
CUPOLA_FLOAT_TEMPLATE class TrainingBatches<InMemory, AsStored>;
CUPOLA_FLOAT_TEMPLATE class TrainingBatches<InMemory, IdentityTransform>;
CUPOLA_FLOAT_TEMPLATE BatchView InMemoryBatches::operator()<HostContext>(std::int64_t, int, HostContext&);

}}  // namespace cupola::CUPOLA_ABI

#endif
