// SPDX-License-Identifier: Apache-2.0
//
// Training in several processes by MPI: a program with the policies MpiConcatMean and MpiAllReduce includes this header
// beside <cupola/cupola.hpp> and <cupola/host.hpp>. It needs Open MPI (cupola::mpi).
#pragma once

#include <cupola/processes/mpi.hpp>
