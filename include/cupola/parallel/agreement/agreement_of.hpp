// SPDX-License-Identifier: Apache-2.0
//
// Determines which kind of agreement a policy is; no other code depends on the kind. Agreement between processes has
// headers of its own, in processes/agreement/, so that only programs with such a policy compile it.
#pragma once

#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/collective_agreement.hpp>
#include <cupola/parallel/agreement/parameter_agreement.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
struct AgreementOf;
template <class A, class D, class T>
    requires AveragesRows<A, typename D::Kernels>
struct AgreementOf<A, D, T> {
    using Type = RowsAgreement<A, D, T>;
};
template <class A, class D, class T>
    requires AveragesBuckets<A, D>
struct AgreementOf<A, D, T> {
    using Type = CollectiveAgreement<A, D, T>;
};
template <class A, class D, class T>
    requires MovesParameters<A, D>
struct AgreementOf<A, D, T> {
    using Type = ParameterAgreement<A, D, T>;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
