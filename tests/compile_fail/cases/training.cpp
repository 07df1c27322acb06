// SPDX-License-Identifier: Apache-2.0

// case: callback_without_hook
// expect: Stop is not a callback: it has none of `on_begin(Run&)`, `on_step(const StepReport&, Run&)` and `on_end(Run&)`
// case: hook_of_other_arguments
// A hook that takes something else: it would never be called.
// expect: Stop::on_step cannot be called as `on_step(const StepReport&, Run&)`
struct Stop {
    /* wrong callback_without_hook */ void after_step(const StepReport&, Run& run) { run.stop = true; }
    /* wrong hook_of_other_arguments */ void on_step(const Evaluation&, Run& run) { run.stop = true; }
    /* right */ void on_step(const StepReport&, Run& run) { run.stop = true; }
};

// fit with Stop{}: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: error_in_a_whole_program
// An error in the network of a program with everything: data, a run in a folder, an evaluation, a prediction.
// expect: layer 3 (Linear<10>) expects one extent, the features: put Flatten before it, or apply it per_position; its input is 24 x 24 x 64 from layer 2 (ReLU)
#include <cupola/predict.hpp>
#include <cupola/train/training_run.hpp>

/* wrong */ struct Net : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<64, 5>>, ReLU, Linear<10>> {};
/* right */ struct Net : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<64, 5>>, ReLU, Flatten, Linear<10>> {};

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

// case: invalid_network_is_trained
// A network with an error that is trained nevertheless: the training adds no second message.
// expect: layer 1 (Linear<8>) expects one extent, the features: put Flatten before it, or apply it per_position; its input is 2 x 2 x 1 from the Input
/* wrong */ struct Net : Sequential<Input<2, 2, 1>, Linear<8>, ReLU, Linear<3>> {};
/* right */ struct Net : Sequential<Input<2, 2, 1>, Flatten, Linear<8>, ReLU, Linear<3>> {};

// fit: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: misspelt_option
// Misspelt options. Of `{.batchsize = 8}` as an argument compilers say only that no function takes it: the declaration that they show
// says what to write, and with the type of the options they name the member.
// expect: has no non-static data member named 'batchsize'
// expect: has no non-static data member named 'weights'
// expect: has no non-static data member named 'lr'
// expect: Adam' has no non-static data member named 'rate'
// expect: has no non-static data member named 'smoothing'
// expect: has no non-static data member named 'step'
// expect: has no non-static data member named 'batch'
// expect: has no non-static data member named 'worker'
// expect: has no non-static data member named 'frequency'
// expect: DataParallel<...>::Options{...} names it
// expect: FitOptions<Training>{...} names it
// expect: BatchOptions{...} names it
// expect-clang: field designator 'batchsize' does not refer to any field
// expect-clang: field designator 'weights' does not refer to any field
// expect-clang: field designator 'lr' does not refer to any field
// expect-clang: field designator 'rate' does not refer to any field
// expect-clang: field designator 'smoothing' does not refer to any field
// expect-clang: field designator 'step' does not refer to any field
// expect-clang: field designator 'batch' does not refer to any field
// expect-clang: field designator 'worker' does not refer to any field
// expect-clang: field designator 'frequency' does not refer to any field
// expect-clang: DataParallel<...>::Options{...} names it
// expect-clang: FitOptions<Training>{...} names it
// expect-clang: BatchOptions{...} names it
// errors-at-most: 12
struct Net : Sequential<Input<4>, Linear<3>> {};
using Training = DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host>;

void run(const InMemory& data, Training& training, InMemoryBatches& batches) {
#ifdef WITH_ERROR
    Training first(Training::Options{.batchsize = 8});
    Training second(Training::Options{.loss = {.weights = {}}});
    Training third(Training::Options{.optimizer = {.lr = 0.1}});
    const Adam adam{.rate = 0.1};
    const CrossEntropy<3> loss{.smoothing = 0.1F};
    fit(training, batches, FitOptions<Training>{.step = 10});
    InMemoryBatches fourth(data, BatchOptions{.batch = 8});
    Prefetch fifth(TrainingBatches(data, AsStored{}, {}), PrefetchOptions{.worker = 1});
    LogEvery log(LogOptions{.frequency = 5});
    Training sixth({.batchsize = 8});
    fit(training, batches, {.step = 10});
    InMemoryBatches seventh(data, {.batch = 8});
#else
    Training first(Training::Options{.batch_size = 8});
    Training second(
        {.batch_size = 8, .loss = {.data = {.label_smoothing = 0.1F}}, .optimizer = {.learning_rate = 0.1}});
    const Adam adam{.learning_rate = 0.1};
    const CrossEntropy<3> loss{.label_smoothing = 0.1F};
    fit(training, batches, FitOptions<Training>{.steps = 10});
    InMemoryBatches fourth(data, BatchOptions{.batch_size = 8});
    Prefetch fifth(TrainingBatches(data, AsStored{}, {}), PrefetchOptions{.workers = 1});
    LogEvery log(LogOptions{.every = 5});
#endif
}

// case: no_network
// expect: Linear<3> is not a network: use a Sequential, or a struct that derives from one
/* wrong */ using Trained = Linear<3>;
/* right */ using Trained = Net;

// fit: Trained, CrossEntropy<3>, Sgd, ConcatMean
