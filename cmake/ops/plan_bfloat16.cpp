// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: operations, plans and training in bfloat16.
#define CUPOLA_COMPILING_OPS
#include <cupola/host.hpp>

#define CUPOLA_TEMPLATE template
#define CUPOLA_ELEMENT BFloat16
#include <cupola/compiled_operations.hpp>
#include <cupola/compiled_training_parts.hpp>
