// SPDX-License-Identifier: Apache-2.0
//
// A step of the tutorial's network in bfloat16, whose replicas are averaged by ConcatMean or by NcclAllReduce. It communicates with
// side_by_side.py by the protocol of tests/benchmarks/peers/protocol.py.
//
//   bench_averaging concat-mean|nccl REPLICAS BATCH    on all GPUs that the process sees, at most one per replica
#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/nccl.hpp>

#include "../../../standard.hpp"
#include "../../synthetic_batches.hpp"
#include "turns.hpp"

using namespace cupola;

namespace {

using Net = InPrecision<MixedBFloat16, Cifar10Net>;

template <class Averaging>
int serve(int replicas, std::int64_t batch) {
    const int devices = std::min(replicas, cuda_devices());
    const gpu_tests::SyntheticBatches batches(batch);
    DataParallel<Net, Cifar10Loss, Sgd, Averaging, Cuda> training({.replicas = replicas,
                                                                   .devices = devices,
                                                                   .batch_size = batch,
                                                                   .seed = 1,
                                                                   .optimizer = {.learning_rate = 0.01}});
    const auto run = [&](int steps) {
        double loss = 0;
        for (int i = 0; i < steps; ++i) {
            training.queue(batches);
            while (const StepReport* const report = training.poll_report()) loss = report->loss;
        }
        while (const StepReport* const report = training.poll_report(0)) loss = report->loss;
        return loss;
    };
    constexpr int warm_up = 20;
    run(warm_up);
    std::printf("{\"name\": \"%s\", \"replicas\": %d, \"devices\": %d}\n", std::string(Averaging::name).c_str(),
                replicas, devices);
    std::fflush(stdout);
    gpu_bench::serve_turns(run);
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 4, "usage: bench_averaging concat-mean|nccl REPLICAS BATCH");
    const std::string_view name = argv[1];
    require(name == "concat-mean" || name == "nccl", "the averaging is concat-mean or nccl, not ", name);
    const int replicas = std::atoi(argv[2]);
    const std::int64_t batch = std::atoll(argv[3]);
    return name == "nccl" ? serve<NcclAllReduce>(replicas, batch) : serve<ConcatMean>(replicas, batch);
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_averaging: %s\n", error.what());
    return 1;
}
