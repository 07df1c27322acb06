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

Result run_on_host(const Run& run) {
    using cupola::Host;
    switch (run.model) {
        case Model::convolutions_bfloat16: return run_model<Model::convolutions_bfloat16, Host, HostMemory>(run);
        case Model::normalized: return run_model<Model::normalized, Host, HostMemory>(run);
        case Model::offloaded: return run_model<Model::offloaded, Host, HostMemory>(run);
        case Model::frozen_body: return run_model<Model::frozen_body, Host, HostMemory>(run);
        case Model::frozen_middle: return run_model<Model::frozen_middle, Host, HostMemory>(run);
        case Model::weighted: return run_model<Model::weighted, Host, HostMemory>(run);
        case Model::two_heads: return run_model<Model::two_heads, Host, HostMemory>(run);
        case Model::convolutions:
        case Model::convolutions_half: break;  // Host has no network in half
    }
    if (is_uncaptured(run)) return run_uncaptured<Host, HostMemory>(run);
    return run_model<Model::convolutions, Host, HostMemory>(run);
}
Result fit_on_host(const Run& run) { return fit_on<cupola::Host, HostMemory>(run); }

bool host_has_bfloat16() { return computes_bfloat16(); }

}  // namespace training_runs
