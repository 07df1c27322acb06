// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun --with-ft ulfm -n P mpi_surviving_program: the program of docs/how-to/processes.md that goes on without a process
// that was killed. Trains in the folder run1.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/mpi.hpp>
#include <cupola/train/training_run.hpp>

using namespace cupola;

struct Net : Sequential<Input<3>, Linear<16>, ReLU, Linear<2>> {};
using Loss = CrossEntropy<2>;

int main() try {
    std::vector<float> bits;
    std::vector<std::int32_t> parities;
    for (int i = 0; i < 8; ++i) {
        bits.insert(bits.end(), {float(i & 1), float(i / 2 & 1), float(i / 4)});
        parities.push_back((i ^ i / 2 ^ i / 4) & 1);
    }
    const InMemory data({3}, bits, parities, 2);
    MpiEnvironment mpi({.survives = true, .deadline_seconds = 60, .folder = "run1"});
    return mpi.survive([&] {
        TrainingRun run({.folder = "run1",
                         .resume = Resume::if_there,
                         .writes = mpi.number() == 0,
                         .max_steps = 100,
                         .checkpoint_every = 20});
        DataParallel<Net, Loss, Sgd, MpiConcatMean, Host> training(
            {.replicas = 4, .batch_size = 2, .averaging = {.folder = "run1", .environment = &mpi}});
        InMemoryBatches batches(data, {.batch_size = 2, .replicas = 4, .seed = 3});
        return run.train(training, batches, NoTest{});
    });
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
