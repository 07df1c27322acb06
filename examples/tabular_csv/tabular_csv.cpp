// SPDX-License-Identifier: Apache-2.0
//
// A table from a CSV file: Fisher's iris flowers (1936), three species by four lengths in centimetres. `tabular_csv
// FOLDER [FILE]` trains on FILE (without it, on examples/data/iris.csv) and stores checkpoints in FOLDER; the mean and
// the deviation of each column, which standardise the inputs, are in the checkpoints too. Called again, it resumes.
// Prints what was read, the loss every 100 steps, the accuracy on a fifth of the flowers, and the species of one flower
// that is predicted from the checkpoint alone.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/data/csv.hpp>
#include <cupola/data/split.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/host.hpp>
#include <cupola/predict.hpp>
#include <cupola/train/training_run.hpp>

using namespace cupola;

struct Flowers : Sequential<Input<4>, Linear<16>, ReLU, Linear<3>> {};

int main(int argc, char** argv) try {
    require((argc == 2 || argc == 3) && *argv[1] != '-', "usage: tabular_csv FOLDER [FILE]");
    const Table flowers = read_csv(argc == 3 ? argv[2] : CUPOLA_IRIS_DATA, {.label = "species"});
    const auto [part, held_back] = split(flowers, {.validation = 0.2, .seed = 1, .stratified = true});
    std::printf("%lld flowers for training and %lld for validation, of %zu species by %zu columns\n",
                static_cast<long long>(part.size()), static_cast<long long>(held_back.size()), flowers.classes().size(),
                flowers.options().inputs.size());

    // Computed from the training part only, and used for everything.
    const Standardization constants = Standardization::of(part);
    Prefetch batches(TrainingBatches(part, constants, {.batch_size = 20, .seed = 1}));
    EvaluationBatches validation(held_back, constants, 20);

    TrainingRun run({.folder = argv[1], .resume = Resume::if_there, .max_steps = 500, .log = {.every = 100}});
    constants.store_in(run.info());
    DataParallel<Flowers, CrossEntropy<3>, Adam, ConcatMean, Host> training(
        {.batch_size = 20, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    if (const int stopped = run.train(training, batches, validation)) return stopped;

    const std::string path = list_checkpoints(argv[1]).front().path;
    const Checkpoint checkpoint = read_checkpoint(path, Flowers::layers);
    const Predictor<Flowers> predictor(checkpoint, path);
    std::array<float, 4> flower{5.9F, 3.0F, 5.1F, 1.8F};  // the last line of the file
    std::array<float, 3> logits{};
    Standardization::stored_in(checkpoint.info, path).apply(flower);
    predictor.predict(flower, logits);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    std::printf("the flower is %s\n", flowers.classes()[static_cast<std::size_t>(best)].c_str());
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
