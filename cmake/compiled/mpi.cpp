// SPDX-License-Identifier: Apache-2.0
//
// cupola::compiled in a project with cupola::mpi: the definitions that need MPI.
#include <cupola/mpi_src.hpp>
