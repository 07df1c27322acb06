// SPDX-License-Identifier: Apache-2.0
//
// How replicas run in step, for Synchronized and every other policy for the running statistics that is `synchronized`
// (parallel/statistics.hpp): batch normalisation uses the mean and the variance of the whole global batch, also in
// forward and backward, so R replicas equal one with the whole batch.
#pragma once

#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step/synchronized_passes.hpp>
