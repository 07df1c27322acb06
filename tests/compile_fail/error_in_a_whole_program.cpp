// SPDX-License-Identifier: Apache-2.0
//
// An error in the network of a program with everything: data, a run in a folder, an evaluation, a prediction.
//
// expect: layer 3 (Linear<10>) expects one extent, the features: put Flatten before it; its input is 24 x 24 x 64 from layer 2 (ReLU)
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/predict.hpp>
#include <cupola/train/training_run.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<64, 5>>, ReLU, Linear<10>> {};
#else
struct Net : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<64, 5>>, ReLU, Flatten, Linear<10>> {};
#endif

int run(std::span<const float> samples, std::span<const std::int32_t> labels, std::span<float> logits) {
    const InMemory data(Net::input_shape, samples, labels, 10);
    InMemoryBatches batches(data, {.batch_size = 8});
    EvaluationBatches test(data, IdentityTransform{}, 8);

    TrainingRun kept({.folder = "run1", .resume = Resume::if_there, .max_steps = 100});
    DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.batch_size = 8, .seed = 1});
    std::fputs(summary<Net>(8).c_str(), stdout);
    kept.print_header(training);
    if (const int stopped = kept.train(training, batches, test)) return stopped;
    fit(training, batches, {.steps = 10}, LogEvery{5});
    (void)evaluate(training, test);
    (void)evaluate(training, test, Weights::averages);
    const TrainingState state = training.state();
    training.restore(state);
    training.set_parameters(training.parameters());
    training.step([&](std::int64_t, int, HostContext&) {
        return BatchView{samples.data(), labels.data(), 8, Net::input_shape};
    });
    (void)training.predict(TensorView<const float, Extents<24, 24, 3>>(samples.data(), 2));

    const Predictor<Net> predictor("run1/model-100.safetensors", {.max_batch = 2});
    predictor.predict(samples, logits);
    return 0;
}
