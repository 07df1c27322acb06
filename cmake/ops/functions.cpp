// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: the functions marked CUPOLA_INLINE, all of them, used here or not. They are not inline here: of an inline constructor
// clang emits that of a base class alone, if that is all that is used.
#define CUPOLA_INLINE
#include <cupola/core/abi.hpp>  // with the name that files have which link to it
#undef CUPOLA_OPS

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
