// SPDX-License-Identifier: Apache-2.0
//
// A number that is not finite gets into no training by a state, and out of none unseen: a fused ReLU makes 0 of a NaN,
// so that no loss need show it.
#include <cupola/parallel/training_state.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "throws_with.hpp"

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(),
                not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t batch_size = 4;

/// Makes one parameter, or one of its gradient's, what it should not be in a step.
struct Ruining : Sgd {
    std::int64_t ruins_step = 0, offset = 0;
    float value = not_a_number;
    void update(const Update<Host>& u) const {
        update_parameters(static_cast<const Sgd&>(*this), u);
        if (u.step == ruins_step) u.parameters[offset] = value;
    }
};

struct Net : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, ReLU, Flatten,
                        Named<"fc", Linear<2>>> {};
struct Convolution : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, ReLU, Flatten, Named<"fc", Linear<2>>> {};
struct Perceptron : Sequential<Input<6, 6, 3>, Flatten, Named<"hidden", Linear<4>>, ReLU, Named<"fc", Linear<2>>> {};
template <class N, class Optimizer = Sgd>
using TrainingOf = DataParallel<N, CrossEntropy<2>, Optimizer, ConcatMean, Host>;

struct Batches {
    std::vector<float> values = std::vector<float>(batch_size * 108);
    std::vector<std::int32_t> labels{0, 1, 1, 0};
    Batches() { initialize(values, normal(1.0), 1, 1, 5, 0); }
    BatchView operator()(std::int64_t, int, HostContext&) const {
        return {values.data(), labels.data(), batch_size, Shape{6, 6, 3}};
    }
};

template <class Training>
std::string refused(Training& training, const TrainingState& state) {
    return message_of<InvalidArgument>([&] { training.restore(state); });
}

/// The offset of a parameter in the arena.
template <class N>
std::size_t place(std::string_view name) {
    for (std::size_t row = 0; row < N::layers.size(); ++row) {
        for (std::size_t p = 0; p < N::layers[row].parameters.count; ++p) {
            if (parameter_name(N::layers, row, p) == name) return static_cast<std::size_t>(N::layers[row].offsets[p]);
        }
    }
    FAIL("there is no ", name);
    return 0;
}

}  // namespace

TEST_CASE("a state with a non-finite number is rejected by the name of its part, and nothing has changed") {
    TrainingOf<Net> training(
        {.batch_size = batch_size, .seed = 3, .optimizer = {.momentum = 0.9}, .moving_average = {.decay = 0.9}});
    training.step(Batches{});
    const TrainingState good = training.state();
    const std::string begin = "a state must be finite, but its ";
    const std::size_t bias = place<Net>("conv1.bias");
    TrainingState state = good;
    state.step = 7;
    state.parameters[bias + 2] = not_a_number;
    CHECK(refused(training, state) == begin + "parameter conv1.bias is nan at [2]");
    state.parameters = good.parameters;
    state.averages[bias + 2] = infinity;
    CHECK(refused(training, state) == begin + "moving average of conv1.bias is inf at [2]");
    state.averages = good.averages;
    state.optimizer[0].values[bias] = -infinity;
    CHECK(refused(training, state) == begin + "momentum_buffer of conv1.bias is -inf at [0]");
    state.optimizer = good.optimizer;
    const auto variance = static_cast<std::size_t>(Net::layers[1].buffer_offsets[1]);
    state.buffers[variance + 3] = -1;
    CHECK(refused(training, state) == begin + "running statistic bn1.running_var is -1 at [3]");
    state.buffers[variance + 3] = not_a_number;
    CHECK(refused(training, state) == begin + "running statistic bn1.running_var is nan at [3]");
    state.buffers = good.buffers;
    state.parameters.back() = infinity;  // padding
    CHECK(training.step() == 1);
    CHECK(training.parameters() == good.parameters);
    CHECK(training.state().buffers == good.buffers);
    training.restore(state);
    CHECK(training.step() == 7);
}

TEST_CASE("a mean of squares below 0 is rejected: the step would divide by the root of it") {
    const std::size_t bias = place<Net>("conv1.bias");
    const auto refusal = [&](auto optimizer, std::size_t arena) {
        TrainingOf<Net, decltype(optimizer)> training({.batch_size = batch_size, .optimizer = optimizer});
        TrainingState state = training.state();
        state.optimizer[arena].values[bias + 1] = -0.0F;
        training.restore(state);
        state.optimizer[arena].values[bias + 1] = -1e-30F;
        return refused(training, state);
    };
    const std::string begin = "a state must be finite, but its ", end = " of conv1.bias is -1e-30 at [1]";
    CHECK(refusal(Adam{}, 0) == "(no exception)");
    CHECK(refusal(Adam{}, 1) == begin + "exp_avg_sq" + end);
    CHECK(refusal(AdamW{}, 1) == begin + "exp_avg_sq" + end);
    CHECK(refusal(Lamb{}, 1) == begin + "exp_avg_sq" + end);
    CHECK(refusal(Adamax{}, 1) == begin + "exp_inf" + end);
    CHECK(refusal(RmsProp{}, 0) == begin + "square_avg" + end);
    CHECK(refusal(Adagrad{}, 0) == begin + "sum" + end);
}

TEST_CASE("non-finite parameters, set or initial, are rejected by name") {
    TrainingOf<Perceptron> training({.batch_size = batch_size});
    const std::vector<float> before = training.parameters();
    std::vector<float> parameters = before;
    parameters[place<Perceptron>("hidden.weight") + 5] = not_a_number;
    CHECK(message_of<InvalidArgument>([&] {
              training.set_parameters(parameters);
          }).starts_with("parameters must be finite, but hidden.weight is nan at ["));
    CHECK(training.parameters() == before);
    CHECK(contains(message_of<InvalidArgument>([] {
                       TrainingOf<Perceptron>({.initializers = {{"fc.weight", normal(3e38)}}});
                   }),
                   "a state must be finite, but its parameter fc.weight is "));
    CHECK(contains(message_of<InvalidArgument>([] {
                       TrainingOf<Perceptron>({.initializers = {{"fc.bias", constant(1e300)}}});
                   }),
                   "the parameter fc.bias has an initialiser with a value that is not a finite float"));
}

TEST_CASE_TEMPLATE("a parameter before a fused ReLU that becomes a NaN is found by the periodic check", N, Convolution,
                   Perceptron) {
    const std::string name = N::layers[0].name == "conv1" ? "conv1.bias" : "hidden.bias";
    for (const int replicas : {1, 2}) {
        CAPTURE(replicas);
        TrainingOf<N, Ruining> training({.replicas = replicas,
                                         .devices = replicas,
                                         .batch_size = batch_size,
                                         .seed = 3,
                                         .optimizer = {{}, 1, static_cast<std::int64_t>(place<N>(name)) + 3},
                                         .check_every = 4});
        const Batches batches;
        // The NaN is there after step 1; the ReLU makes 0 of it, and the steps go on.
        for (int step = 0; step < 3; ++step) CHECK(training.step(batches).step == step);
        CHECK(training.healthy());
        try {
            training.step(batches);
            FAIL("the step was made");
        } catch (const DivergedError& error) {
            CHECK(error.step == 3);
            CHECK(contains(error.what(), "after step 3 the parameter " + name + " is nan at [3]"));
        }
        CHECK(!training.healthy());
    }
}

TEST_CASE("padding between the parameters is not checked, and check_every 0 checks nothing") {
    const auto options = [](std::size_t offset, int check_every) {
        return TrainingOf<Convolution, Ruining>::Options{.batch_size = batch_size,
                                                         .seed = 3,
                                                         .optimizer = {{}, 0, static_cast<std::int64_t>(offset)},
                                                         .check_every = check_every};
    };
    const Batches batches;
    TrainingOf<Convolution, Ruining> padded(options(place<Convolution>("conv1.bias") + 4, 1)),
        unchecked(options(place<Convolution>("conv1.bias"), 0));
    for (int step = 0; step < 3; ++step) {
        CHECK(padded.step(batches).step == step);
        CHECK(unchecked.step(batches).step == step);
    }
    CHECK(padded.healthy());
}

TEST_CASE("running statistics that overflow are found by the periodic check") {
    // Squares of 1e20 are infinite in float, and the normalised values are 0.
    Batches batches;
    for (float& value : batches.values) value *= 1e25F;
    TrainingOf<Net> training({.batch_size = batch_size, .seed = 3, .check_every = 2});
    std::string message;
    for (int step = 0; step < 2 && !contains(message, "after step"); ++step)
        message = message_of<DivergedError>([&] { training.step(batches); });
    CAPTURE(message);
    CHECK(contains(message, "the running statistic bn1.running_var is inf at ["));
}
