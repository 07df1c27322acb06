// SPDX-License-Identifier: Apache-2.0
//
// A run on GPUs with the averaging that --averaging names. For nvcc.
#pragma once

#include <string>

#include "on_cuda.hpp"
#include "training_run.hpp"

namespace cifar10 {

template <class Net, class Loss, class Augment, class Centre, class Statistics = FirstReplica>
int run_on_cuda(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                const std::string& optimizer, const Statistics& statistics = {}) {
    OnCuda side(options);
#ifdef CUPOLA_EXAMPLE_NCCL
    if (options.averaging == "nccl") {
        const NcclAllReduce averaging{
            .processes = options.processes, .process = std::max(0, options.process), .id_file = options.id_file};
        return run<Net, Loss, Augment, Centre>(options, images, schedule, optimizer, side, averaging, statistics);
    }
#endif
    return run<Net, Loss, Augment, Centre>(options, images, schedule, optimizer, side, ConcatMean{}, statistics);
}

}  // namespace cifar10
