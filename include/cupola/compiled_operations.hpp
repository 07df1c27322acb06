// SPDX-License-Identifier: Apache-2.0
//
// The list of the templates that cupola::ops has compiled for one element type of activations, CUPOLA_ELEMENT: the
// operations of `Host` as nodes of a plan, and its plans. CUPOLA_TEMPLATE is `extern template` in programs that link to
// the library (compiled.hpp), and `template` in its sources. An operation of Cupola that is missing here does not
// compile in such programs.
#ifdef CUPOLA_TEMPLATE

namespace cupola { inline namespace CUPOLA_ABI {

// clang-format off
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Add<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::BatchNorm<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const BatchNormShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::ColumnInput<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Concatenation<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Convolution<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const ConvolutionShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Dropout<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const double&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Embedding<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const EmbeddingShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Fork<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::FromBytes<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const BytesShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Linear<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const LinearShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::LocalResponseNorm<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const LocalResponseNormShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::LrnThenPool<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const LocalResponseNormShape&, const PoolingShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::OptionAShortcut<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const OptionAShortcutShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::PoolThenLrn<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const PoolingShape&, const LocalResponseNormShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Pooling<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const PoolingShape&);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Relu<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>);
CUPOLA_TEMPLATE impl::Node<CUPOLA_ELEMENT> impl::node_of<ops::Upsampling<Host, CUPOLA_ELEMENT>>(impl::Build<CUPOLA_ELEMENT>, const UpsamplingShape&);

CUPOLA_TEMPLATE class Plan<Host, CUPOLA_ELEMENT>;
// clang-format on

}}  // namespace cupola::CUPOLA_ABI

#endif
