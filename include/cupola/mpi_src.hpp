// SPDX-License-Identifier: Apache-2.0
//
// The definitions of cupola/mpi.hpp in a program that is compiled with CUPOLA_SEPARATE_COMPILATION, as src.hpp has the
// others: one file of the program includes this header, before any other header of Cupola but src.hpp. It may be the
// file of src.hpp. The CMake target cupola::compiled has it where the project has the component mpi.
#ifdef CUPOLA_MPI_SRC
#error "cupola/mpi_src.hpp is included twice in this file"
#elif !defined(CUPOLA_SEPARATE_COMPILATION)
#error "cupola/mpi_src.hpp is for programs whose files are all compiled with -DCUPOLA_SEPARATE_COMPILATION: define it"
#elif defined(CUPOLA_VERSION_MAJOR) && !defined(CUPOLA_SRC)
#error \
    "cupola/mpi_src.hpp must be included before any other header of Cupola: include it first, or in a file of its own"
#else
#define CUPOLA_MPI_SRC
#define CUPOLA_MPI_DECL

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/mpi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {
const char include_cupola_mpi_src_hpp_in_exactly_one_file_with_the_same_flags = 0;
}}  // namespace cupola::CUPOLA_ABI
#endif
