// SPDX-License-Identifier: Apache-2.0
//
// The trainings of training_runs.hpp on `Host`, the reference for every averaging policy of `Cuda`.
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include <cstddef>

#include "../../instructions.hpp"
#include "train.hpp"

namespace training_runs {

namespace {

struct HostMemory : cupola::HostArena {
    explicit HostMemory(std::size_t bytes) : HostArena(bytes, "samples") {}
};

}  // namespace

Result run_on_host(const Run& run) { return run_on<cupola::Host, HostMemory>(run); }
Result fit_on_host(const Run& run) { return fit_on<cupola::Host, HostMemory>(run); }

bool host_has_bfloat16() { return computes_bfloat16(); }

}  // namespace training_runs
