// SPDX-License-Identifier: Apache-2.0
//
// Part of a split where InMemoryBatches takes the whole data set in memory.
//
// expect: InMemoryBatches is for InMemory alone: for another data set, such as a part of a split, write Prefetch batches(TrainingBatches(data, IdentityTransform{}, {...}))
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/data/split.hpp>

using namespace cupola;

void run(const InMemory& data) {
    const auto [part, held_back] = split(data, {.validation = 0.2, .seed = 1});
#ifdef WITH_ERROR
    InMemoryBatches batches(part, {.batch_size = 50});
#else
    Prefetch batches(TrainingBatches(part, IdentityTransform{}, {.batch_size = 50}));
#endif
}
