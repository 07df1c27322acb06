// SPDX-License-Identifier: Apache-2.0
//
// The list of the training templates on `Host` that cupola::ops has compiled: for the element type CUPOLA_ELEMENT, or,
// if that is not defined, those without an element type. CUPOLA_TEMPLATE is as in compiled_operations.hpp.
#ifdef CUPOLA_TEMPLATE

namespace cupola { inline namespace CUPOLA_ABI {

// clang-format off
#ifdef CUPOLA_ELEMENT
CUPOLA_TEMPLATE class impl::DeviceWorker<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::Plans<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE std::string impl::first_not_finite(impl::DeviceWorker<Host, CUPOLA_ELEMENT>&, Plan<Host, CUPOLA_ELEMENT>&,
                                                   std::span<const LayerInfo>, const float*, const BatchView&, const RngKey&);
CUPOLA_TEMPLATE class impl::LocalDevices<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::RowsAgreement<ConcatMean, Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::Replicas<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::TakenBatches<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::ReplicaLosses<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::SynchronizedPasses<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::ReplicaPasses<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::SyncBatchNormGroup<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::StepReports<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::SharedStatistics<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::StepProbe<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::StepFailure<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::StepReader<Host, CUPOLA_ELEMENT, impl::RowsAgreement<ConcatMean, Host, CUPOLA_ELEMENT>>;
CUPOLA_TEMPLATE class impl::StepUpdate<Host, CUPOLA_ELEMENT, impl::RowsAgreement<ConcatMean, Host, CUPOLA_ELEMENT>>;
CUPOLA_TEMPLATE class impl::StepEngine<Host, CUPOLA_ELEMENT, ConcatMean>;
CUPOLA_TEMPLATE class impl::Evaluator<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE class impl::StateTransfer<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE struct ops::MeasurePeakRates<Host, CUPOLA_ELEMENT>;
CUPOLA_TEMPLATE void impl::queue_check(impl::Replicas<Host, CUPOLA_ELEMENT>&, int);
CUPOLA_TEMPLATE void impl::check_agreement(impl::Replicas<Host, CUPOLA_ELEMENT>&, impl::Peers&, std::int64_t,
                                           std::span<const float>);
#else
CUPOLA_TEMPLATE struct impl::CompiledUpdates<Optimizers>;
CUPOLA_TEMPLATE class impl::ReplicaGradients<Host>;
CUPOLA_TEMPLATE void MovingAverage::update<Host>(HostContext&, float*, const float*, std::int64_t, std::int64_t) const;
CUPOLA_TEMPLATE class ops::ElementwiseLoss<Host, impl::AbsoluteErrorFormula>;
CUPOLA_TEMPLATE class ops::ElementwiseLoss<Host, impl::BinaryCrossEntropyFormula>;
CUPOLA_TEMPLATE class ops::ElementwiseLoss<Host, impl::ChannelBinaryCrossEntropyFormula>;
CUPOLA_TEMPLATE class ops::ElementwiseLoss<Host, impl::HuberFormula>;
CUPOLA_TEMPLATE class ops::ElementwiseLoss<Host, impl::SquaredErrorFormula>;
CUPOLA_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::LabelTargets>;
CUPOLA_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::SoftTargets<>>;
CUPOLA_TEMPLATE class ops::SoftmaxCrossEntropy<Host, float, impl::WeightedLabelTargets<>>;
CUPOLA_TEMPLATE class TrainingBatches<InMemory, AsStored>;
CUPOLA_TEMPLATE class TrainingBatches<InMemory, IdentityTransform>;
CUPOLA_TEMPLATE BatchView InMemoryBatches::operator()<HostContext>(std::int64_t, int, HostContext&);
#endif
// clang-format on

}}  // namespace cupola::CUPOLA_ABI

#endif
