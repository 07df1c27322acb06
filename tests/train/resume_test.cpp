// SPDX-License-Identifier: Apache-2.0
//
// N steps are k steps, a checkpoint, and N - k more of another training that reads it: bit for bit, for every k over
// two epochs, with all that a step depends on (statistics, dropout, optimiser, averages, accumulation) and with another
// number of devices and workers. (tests/examples/resume.sh does the same with processes.)
#include <cupola/optim/clipped.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/train/checkpoint_every.hpp>

#include "io/file_support.hpp"

namespace {

// clang-format off
struct Net : Sequential<Input<4, 4, 2>,
    Named<"conv1", Conv2d<4, 3, no_bias>>, Named<"bn1", BatchNorm2d<>>, ReLU,
    Flatten, Dropout<0.25>, Named<"fc", Linear<3>>> {};
// clang-format on

/// 24 samples: with 2 replicas of 2 an epoch is 6 steps.
struct Samples {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    InMemory data;

    Samples() : values(24UL * 32), labels(24), data(made()) {}

private:
    InMemory made() {
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = uniform(RandomStream(3, RngDomain::user, 0, i).words(0)[0]) - 0.5F;
        }
        for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3);
        return {Net::input_shape, values, labels, 3};
    }
};

constexpr std::int64_t last = 13;

template <class Optimizer, class Statistics>
struct Case {
    using Training = DataParallel<Net, CrossEntropy<3>, Optimizer, ConcatMean, Host, Statistics>;
    Samples samples;
    Optimizer optimizer;
    int gradient_accumulation_steps = 1;

    /// The state after `steps` steps from where the folder's newest checkpoint stands.
    TrainingState run(const std::string& folder, std::int64_t steps, int devices, int workers) const {
        Training training({.replicas = 2,
                           .devices = devices,
                           .device = {.threads = 1},
                           .batch_size = 2,
                           .gradient_accumulation_steps = gradient_accumulation_steps,
                           .seed = 5,
                           .optimizer = optimizer,
                           .moving_average = {.decay = 0.99}});
        Prefetch batches(
            TrainingBatches(samples.data, IdentityTransform{}, {.batch_size = 2, .replicas = 2, .seed = 5}),
            {.workers = workers});
        CheckpointDirectory directory(folder);
        const FoundCheckpoint found = directory.newest_valid(Net::layers);
        if (found.checkpoint) training.restore(found.checkpoint->state);
        fit(training, batches, {.steps = steps - training.step()}, CheckpointEvery(training, directory, {.every = 4}));
        return training.state();
    }

    void check() const {
        const io_tests::TemporaryFolder undisturbed;
        const TrainingState whole = run(undisturbed.path(), last, 1, 0);
        const std::string expected = io_tests::read_bytes(undisturbed.path("model-13.safetensors"));
        REQUIRE(!expected.empty());
        REQUIRE(whole.step == last);
        for (std::int64_t k = 1; k < last; ++k) {
            CAPTURE(k);
            const io_tests::TemporaryFolder stopped;
            const int devices = 1 + static_cast<int>(k % 2);
            run(stopped.path(), k, devices, static_cast<int>(k % 3));
            const TrainingState state = run(stopped.path(), last, 3 - devices, static_cast<int>((k + 1) % 4));
            CHECK(state.parameters == whole.parameters);
            CHECK(state.averages == whole.averages);
            CHECK(state.buffers == whole.buffers);
            // The optimiser's state too; its arenas may differ between the parameters, where nothing is.
            CHECK(io_tests::read_bytes(stopped.path("model-13.safetensors")) == expected);
        }
    }
};

}  // namespace

TEST_CASE(
    "a run that is stopped after any step and resumed has the bits of one that is not, with momentum and pooled statistics") {
    Case<Sgd, Pooled>{.samples = {}, .optimizer = {.learning_rate = 0.1, .momentum = 0.9}}.check();
}

TEST_CASE("a resumed run has the same bits with Adam, several batches per step and synchronised statistics") {
    Case<Adam, Synchronized>{.samples = {}, .optimizer = {.learning_rate = 0.01}, .gradient_accumulation_steps = 2}
        .check();
}

TEST_CASE(
    "a resumed run has the same bits with Adagrad, whose sums start above 0 and are stored under PyTorch's name") {
    const Case<Adagrad, FirstReplica> adagrad{.samples = {},
                                              .optimizer = {.learning_rate = 0.1, .initial_accumulator_value = 0.1}};
    adagrad.check();
    const io_tests::TemporaryFolder folder;
    adagrad.run(folder.path(), 1, 1, 0);
    const std::string file = io_tests::read_bytes(folder.path("model-1.safetensors"));
    CHECK(file.find("optimizer.sum.fc.weight") != std::string::npos);
}

TEST_CASE("a resumed run has the same bits with Adamax, whose largest gradients are stored under PyTorch's name") {
    const Case<Adamax, FirstReplica> adamax{.samples = {}, .optimizer = {.learning_rate = 0.01}};
    adamax.check();
    const io_tests::TemporaryFolder folder;
    adamax.run(folder.path(), 1, 1, 0);
    const std::string file = io_tests::read_bytes(folder.path("model-1.safetensors"));
    CHECK(file.find("optimizer.exp_inf.fc.weight") != std::string::npos);
}

TEST_CASE("a resumed run has the same bits with NesterovVelocity, whose velocity contains the rates of its steps") {
    const Case<NesterovVelocity, FirstReplica> nesterov{.samples = {},
                                                        .optimizer = {.learning_rate = exponential_decay(0.1, 5, 0.5)}};
    nesterov.check();
    const io_tests::TemporaryFolder folder;
    nesterov.run(folder.path(), 1, 1, 0);
    const std::string file = io_tests::read_bytes(folder.path("model-1.safetensors"));
    CHECK(file.find("optimizer.velocity.fc.weight") != std::string::npos);
}

TEST_CASE("a resumed run has the same bits with a schedule, clipped gradients and the first replica's statistics") {
    using Optimizer = Clipped<RmsProp>;
    const Optimizer optimizer{.optimizer = {.learning_rate = exponential_decay(0.01, 5, 0.5)}, .max_norm = 0.5};
    Case<Optimizer, FirstReplica>{.samples = {}, .optimizer = optimizer}.check();
}
