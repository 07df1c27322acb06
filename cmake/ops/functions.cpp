// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: the functions marked CUPOLA_INLINE, all of them, used here or not.
#define CUPOLA_INLINE [[gnu::used]] inline
#include <cupola/core/abi.hpp>  // with the name that files have which link to it
#undef CUPOLA_OPS

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
