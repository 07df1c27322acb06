// SPDX-License-Identifier: Apache-2.0
//
// The whole of cupola::compiled, as one file.
#include <cupola/src.hpp>
