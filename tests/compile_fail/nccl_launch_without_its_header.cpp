// SPDX-License-Identifier: Apache-2.0
//
// What a launcher says of the processes is not in cupola.hpp.
//
// expect: this member of NcclAllReduce needs #include <cupola/nccl.hpp>, or <cupola/processes/nccl_launch.hpp>, which needs no NCCL
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#ifndef WITH_ERROR
#include <cupola/processes/nccl_launch.hpp>
#endif

using namespace cupola;

NcclAllReduce policy() { return NcclAllReduce{.id_file = "run.id"}.as_launched(); }
std::string launcher() { return NcclAllReduce::launcher(); }
int gpu() { return NcclAllReduce::first_gpu(2, 8); }
void check() { policy().check(2); }
