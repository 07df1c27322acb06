// SPDX-License-Identifier: Apache-2.0
//
// Lesson 4: four replicas on two devices, and a user-defined averaging policy: the replicas' gradients are added in a
// tree, so that rounding errors grow with the logarithm of their number. The network learns the parity of three bits.
// Prints the loss every 500 steps, and the accuracy at the end.
#include <cstdio>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct TreeSum {
    static constexpr std::string_view name = "tree sum";

    void average(const HostContext& context, const GradientRows& gradients, std::span<float> mean) const {
        for_each_block(context, gradients.columns, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                mean[static_cast<std::size_t>(i)] = sum(gradients, i, 0, gradients.rows.size());
            }
        });
    }
    static float sum(const GradientRows& gradients, std::int64_t column, std::size_t first, std::size_t last) {
        if (last - first > 1) {
            const std::size_t middle = (first + last) / 2;
            return sum(gradients, column, first, middle) + sum(gradients, column, middle, last);
        }
        return gradients.rows[first][column] * static_cast<float>(gradients.samples[first]) /
               static_cast<float>(gradients.total_samples);
    }
};

struct Parity : Sequential<Input<3>, Linear<16>, ReLU, Linear<2>> {};

int main() try {
    std::vector<float> bits;
    std::vector<std::int32_t> parities;
    for (int i = 0; i < 8; ++i) {
        bits.insert(bits.end(), {float(i & 1), float(i / 2 & 1), float(i / 4)});
        parities.push_back((i ^ i / 2 ^ i / 4) & 1);
    }
    const InMemory data(Parity::input_shape, bits, parities, 2);
    DataParallel<Parity, CrossEntropy<2>, Sgd, TreeSum, Host> training(
        {.replicas = 4, .devices = 2, .batch_size = 2, .seed = 3});
    InMemoryBatches batches(data, {.batch_size = 2, .replicas = 4, .seed = 3});
    fit(training, batches, {.steps = 2000}, LogEvery{500});

    EvaluationBatches test(data, IdentityTransform{}, 2);
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
} catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
