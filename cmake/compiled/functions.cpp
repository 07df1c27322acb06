// SPDX-License-Identifier: Apache-2.0
//
// cupola::compiled: the functions that are not templates.
#define CUPOLA_SRC_FUNCTIONS
#include <cupola/src.hpp>
