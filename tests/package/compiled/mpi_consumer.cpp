// SPDX-License-Identifier: Apache-2.0
//
// A program that links to cupola::mpi and cupola::compiled: the three ways to agree between processes, in float. What
// the library lacks is an error of the linker.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/mpi.hpp>
#include <cupola/parallel/compressed.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<3>> {};

template <class Averaging>
bool trains(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 4});
    InMemoryBatches batches(data, {.batch_size = 4, .replicas = 2, .seed = 1});
    fit(training, batches, {.steps = 2});
    return training.step() == 2;
}

int main() {
    const MpiEnvironment mpi;
    const std::vector<float> samples(64 * 4, 0.5F);
    const std::vector<std::int32_t> labels(64, 1);
    const InMemory data(Net::input_shape, samples, labels, 3);
    const bool all = trains<MpiConcatMean>(data) && trains<MpiAllReduce>(data) &&
                     trains<Compressed<MpiConcatMean>>(data) && trains<Compressed<MpiAllReduce>>(data);
    if (mpi.number() == 0) std::printf("%d processes: %s\n", mpi.count(), all ? "trained" : "failed");
    return all ? 0 : 1;
}
