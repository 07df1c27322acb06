// SPDX-License-Identifier: Apache-2.0
//
// Thrust's OpenMP system, in a file that may or may not be compiled by nvcc. Without a word from the build, Thrust takes
// CUDA as its device system and wants CUDA's headers even where only the OpenMP system is used.
#pragma once

#if !defined(THRUST_DEVICE_SYSTEM) && !defined(__CUDACC__)
#define THRUST_DEVICE_SYSTEM 2  // THRUST_DEVICE_SYSTEM_OMP
#endif

// Of the OpenMP system only the policy: <thrust/system/omp/execution_policy.h> brings every algorithm of it, 52 MB and a
// quarter of a second in each file that includes Cupola.
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/omp/detail/par.h>
