// SPDX-License-Identifier: Apache-2.0
//
// The definitions of a program that is compiled with CUPOLA_SEPARATE_COMPILATION: the other files then take them from
// the object of the one file that includes this header, before any other header of Cupola. All files must be compiled
// with the same flags; a program with files for several instruction sets has one such file for each of them. The
// program links to the libraries of cupola::host, whether or not it uses them.
//
// The CMake target cupola::compiled is this file, compiled in three parts at a time: each defines the macro of its
// part.
#ifdef CUPOLA_SRC
#error "cupola/src.hpp is included twice in this file"
#elif !defined(CUPOLA_SEPARATE_COMPILATION)
#error "cupola/src.hpp is for programs whose files are all compiled with -DCUPOLA_SEPARATE_COMPILATION: define it"
#elif defined(CUPOLA_VERSION_MAJOR)
#error "cupola/src.hpp must be included before any other header of Cupola: include it first, or in a file of its own"
#else
#define CUPOLA_SRC
#if !defined(CUPOLA_SRC_FUNCTIONS) && !defined(CUPOLA_SRC_FLOAT) && !defined(CUPOLA_SRC_BFLOAT16)
#define CUPOLA_SRC_FUNCTIONS
#define CUPOLA_SRC_FLOAT
#define CUPOLA_SRC_BFLOAT16
#endif

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/processes/agreement/process_peers.hpp>
#include <cupola/processes/agreement/same_training.hpp>

#ifdef CUPOLA_SRC_FUNCTIONS
// Definitions of headers that cupola.hpp leaves out.
#include <cupola/metrics.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/epochs.hpp>
#include <cupola/optim/rate_scaling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {
const char include_cupola_src_hpp_in_exactly_one_file_with_the_same_flags = 0;
}}  // namespace cupola::CUPOLA_ABI
#endif
#endif
