// SPDX-License-Identifier: Apache-2.0
//
// The program of docs/how-to/processes.md: four replicas in as many processes as the launcher starts. Prints the loss of each
// replica in the last step.
#include <cstdio>
#include <exception>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/mpi.hpp>

using namespace cupola;

struct Parity : Sequential<Input<3>, Linear<16>, ReLU, Linear<2>> {};

int main() try {
    const MpiEnvironment mpi;
    std::vector<float> bits;
    std::vector<std::int32_t> parities;
    for (int i = 0; i < 8; ++i) {
        bits.insert(bits.end(), {float(i & 1), float(i / 2 & 1), float(i / 4)});
        parities.push_back((i ^ i / 2 ^ i / 4) & 1);
    }
    const InMemory data({3}, bits, parities, 2);
    InMemoryBatches batches(data, {.batch_size = 2, .replicas = 4, .seed = 3});

    DataParallel<Parity, CrossEntropy<2>, Sgd, MpiConcatMean, Host> training(
        {.replicas = 4, .batch_size = 2, .seed = 3, .averaging = {.deadline_seconds = 60, .folder = "."}});
    const StepReport* report = nullptr;
    for (int step = 0; step < 200; ++step) report = &training.step(batches);
    if (mpi.number() == 0) {
        for (const ReplicaReport& replica : report->replicas) std::printf("%.9g\n", replica.total);
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
