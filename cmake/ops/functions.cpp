// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: the functions marked CUPOLA_INLINE, all of them, used here or not.
#undef CUPOLA_OPS
#define CUPOLA_INLINE [[gnu::used]] inline

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
