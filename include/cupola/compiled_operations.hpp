// SPDX-License-Identifier: Apache-2.0
//
// The list of the templates that cupola::ops has compiled for one element type of activations, CUPOLA_ELEMENT: the operations
// of `Host` as nodes of a plan, and its plans. CUPOLA_TEMPLATE is `extern template` in programs that link to the library
// (compiled.hpp), and `template` in its sources. An operation of Cupola that is missing here does not compile in such programs.
#ifdef CUPOLA_TEMPLATE

namespace cupola::inline CUPOLA_ABI {

// clang-format off
CUPOLA_TEMPLATE ops::BatchNorm<Host, CUPOLA_ELEMENT> make_operation(impl::Build<CUPOLA_ELEMENT>, const BatchNormShape&);
CUPOLA_TEMPLATE ops::Convolution<Host, CUPOLA_ELEMENT> make_operation(impl::Build<CUPOLA_ELEMENT>, const ConvolutionShape&);
CUPOLA_TEMPLATE ops::Linear<Host, CUPOLA_ELEMENT> make_operation(impl::Build<CUPOLA_ELEMENT>, const LinearShape&);
CUPOLA_TEMPLATE ops::LocalResponseNorm<Host, CUPOLA_ELEMENT> make_operation(impl::Build<CUPOLA_ELEMENT>, const LocalResponseNormShape&);
CUPOLA_TEMPLATE ops::Pooling<Host, CUPOLA_ELEMENT> make_operation(impl::Build<CUPOLA_ELEMENT>, const PoolingShape&);

CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Add<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::BatchNorm<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Convolution<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Dropout<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Fork<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Linear<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::LocalResponseNorm<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::OptionAShortcut<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Pooling<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of(ops::Relu<Host, CUPOLA_ELEMENT> (*)(impl::Build<CUPOLA_ELEMENT>), impl::Build<CUPOLA_ELEMENT>);

CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::make_fused_node<impl::fusions::LrnThenPool>(std::span<const LayerInfo>, const NodeInfo&, impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::make_fused_node<impl::fusions::PoolThenLrn>(std::span<const LayerInfo>, const NodeInfo&, impl::Build<CUPOLA_ELEMENT>);

CUPOLA_TEMPLATE class Plan<Host, CUPOLA_ELEMENT>;
// clang-format on

}  // namespace cupola::inline CUPOLA_ABI

#endif
