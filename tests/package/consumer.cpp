// SPDX-License-Identifier: Apache-2.0
//
// A small program for ways of building: it needs the headers, oneDNN and OpenMP. (Other tests of the package build
// examples/1_data_in_memory.)
#include <cstdio>
#include <vector>

#include <cupola/tensor/algorithms.hpp>

int main() {
    const cupola::HostContext context(0, {.threads = 2});
    const std::vector<float> values(100'000, 0.5F);
    const double sum = cupola::sum_of_squares(context, values);
    std::printf("%g\n", sum);
    return sum == 25'000 ? 0 : 1;
}
