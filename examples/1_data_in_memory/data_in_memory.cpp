// SPDX-License-Identifier: Apache-2.0
//
// Lesson 1: a network as a type, trained by two replicas on data in memory to predict the quadrant of a point.
// Prints the loss every 100 steps, and the accuracy at the end.
#include <cstdio>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Quadrants : Sequential<Input<2>, Linear<32>, ReLU, Linear<4>> {};
static_assert(Quadrants::output == Extents<4>{} && Quadrants::parameter_count == 228);

int main() try {
    std::vector<float> points;
    std::vector<std::int32_t> quadrants;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const auto words = RandomStream(7, RngDomain::user, 0, i).words(0);
        const float x = 2 * uniform(words[0]) - 1, y = 2 * uniform(words[1]) - 1;
        points.insert(points.end(), {x, y});
        quadrants.push_back((x > 0 ? 1 : 0) + (y > 0 ? 2 : 0));
    }
    const InMemory data(Quadrants::input_shape, points, quadrants, 4);

    DataParallel<Quadrants, CrossEntropy<4>, Sgd, ConcatMean, Host> training(
        {.replicas = 2, .batch_size = 50, .seed = 1, .optimizer = {.learning_rate = 0.2, .momentum = 0.9}});
    InMemoryBatches batches(data, {.batch_size = 50, .replicas = 2, .seed = 1});
    fit(training, batches, {.steps = 400}, LogEvery{100});

    EvaluationBatches test(data, IdentityTransform{}, 50);
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
} catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
