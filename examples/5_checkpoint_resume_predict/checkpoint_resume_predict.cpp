// SPDX-License-Identifier: Apache-2.0
//
// Lesson 5: a run that can be stopped and resumed. `5_checkpoint_resume_predict FOLDER STEPS` trains up to STEPS steps
// and stores checkpoints and the log in FOLDER. Called again with more steps, or after Ctrl-C, it resumes from the
// newest checkpoint and ends with the same bits as a run that was not stopped. Then it is used to predict.
// Prints the network, the loss every 100 steps, the accuracy, and the predicted quadrants of two points.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/predict.hpp>
#include <cupola/train/training_run.hpp>

using namespace cupola;

struct Quadrants : Sequential<Input<2>, Linear<32>, ReLU, Linear<4>> {};

int main(int argc, char** argv) try {
    require(argc == 3, "usage: 5_checkpoint_resume_predict FOLDER STEPS");
    char* end = nullptr;
    const long long steps = std::strtoll(argv[2], &end, 10);
    require(end != argv[2] && *end == '\0', "STEPS is a whole number, not \"", argv[2], '"');
    std::vector<float> points;
    std::vector<std::int32_t> quadrants;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const auto words = RandomStream(7, RngDomain::user, 0, i).words(0);
        const float x = 2 * uniform(words[0]) - 1, y = 2 * uniform(words[1]) - 1;
        points.insert(points.end(), {x, y});
        quadrants.push_back((x > 0 ? 1 : 0) + (y > 0 ? 2 : 0));
    }
    const InMemory data(Quadrants::input_shape, points, quadrants, 4);
    InMemoryBatches batches(data, {.batch_size = 50, .seed = 1});
    EvaluationBatches test(data, IdentityTransform{}, 50);

    TrainingRun run({.folder = argv[1],
                     .resume = Resume::if_there,
                     .max_steps = steps,
                     .log = {.every = 100},
                     .checkpoint_every = 200});
    DataParallel<Quadrants, CrossEntropy<4>, Sgd, ConcatMean, Host> training(
        {.batch_size = 50, .seed = 1, .optimizer = {.learning_rate = 0.2, .momentum = 0.9}});
    run.print_header(training);
    if (const int stopped = run.train(training, batches, test)) return stopped;

    const Predictor<Quadrants> predictor(list_checkpoints(argv[1]).front().path, {.max_batch = 2});
    std::array<float, 8> logits{};
    predictor.predict(std::array{0.5F, 0.7F, -0.3F, 0.2F}, logits);
    for (auto point = logits.begin(); point != logits.end(); point += 4)
        std::printf("quadrant %td\n", std::max_element(point, point + 4) - point);
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
