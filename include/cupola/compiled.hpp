// SPDX-License-Identifier: Apache-2.0
//
// The templates that cupola::ops has compiled because they do not depend on a user's network: the operations of `Host`
// and its plans, in float and bfloat16. This header declares them to programs that link to the library; the library's
// sources instantiate the same list. compiled_training.hpp has the templates that training needs in addition.
#pragma once

#ifdef CUPOLA_OPS

#include <cstddef>
#include <memory>
#include <span>

#include <cupola/host_operations.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

// The list is declared in programs that link to the library, and defined in its sources, which define this as nothing.
#ifndef CUPOLA_COMPILED
#define CUPOLA_COMPILED extern
#endif

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class T>
using Build = const BuildContext<Host, T>&;
template <class T>
using Node = std::unique_ptr<PlanNode<Host, T>>;

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI

#define CUPOLA_TEMPLATE extern template
#define CUPOLA_ELEMENT float
#include <cupola/compiled_operations.hpp>
#undef CUPOLA_ELEMENT
#define CUPOLA_ELEMENT BFloat16
#include <cupola/compiled_operations.hpp>
#undef CUPOLA_ELEMENT
#undef CUPOLA_TEMPLATE

#endif
