// SPDX-License-Identifier: Apache-2.0
//
// Trainings with frozen parameters, on `Host` and on a device that computes later: what is trained has the bits that it has where
// a parameter group freezes the rest, for every kind of agreement, with regularisers, clipping, averages, accumulation and
// synchronised statistics; and the memory, the state, checkpoints, resuming and prediction.
#include <cupola/net/frozen.hpp>
#include <cupola/optim/clipped.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/load_parameters.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/predict.hpp>

#include "../labelled_samples.hpp"
#include "delayed_device.hpp"
#include "instructions.hpp"
#include "io/file_support.hpp"
#include "optim/each_optimizer.hpp"
#include "policies.hpp"
#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"norm1", BatchNorm2d<>>, ReLU,
                        Named<"conv2", Conv2d<4, 3>>, Named<"norm2", BatchNorm2d<>>, ReLU, Flatten,
                        Named<"hidden", Linear<8>>, ReLU, Named<"head", Linear<5>>> {};
/// The first two layers, and one in the middle.
struct Tuned : Frozen<Net, FrozenNorms::batch_statistics, "conv1.*", "norm1.*", "hidden.*"> {};
struct TunedRunning : Frozen<Net, "conv1.*", "norm1.*"> {};
struct Net16 : InPrecision<MixedBFloat16, Net> {};
struct Tuned16 : InPrecision<MixedBFloat16, Tuned> {};
using TheLoss = LossCollection<CrossEntropy<5>, WeightDecayAll<0.01>>;
template <class N, class D, class A = ConcatMean, class S = Pooled, class O = Clipped<Sgd>>
using Training = DataParallel<N, TheLoss, O, A, D, S>;

/// The same by groups, which freeze the parameters without a part in the type.
const std::vector<ParameterGroup> parameter_groups{
    {.pattern = "*1.*", .frozen = true}, {.pattern = "hidden.*", .frozen = true}, {.pattern = "head.*", .rate = 2}};
const std::vector<ParameterGroup> groups_of_tuned{{.pattern = "head.*", .rate = 2}};

constexpr auto batch = [](std::int64_t step, int replica, HostContext&) -> BatchView {
    static const LabelledSamples samples(64, {6, 6, 3}, 5, 9);
    return samples.view((step * 5 + replica * 11) % 60, replica == 1 && step % 3 == 1 ? 3 : 4);
};

template <class T>
typename T::Options options_for(int devices, std::vector<ParameterGroup> with) {
    typename T::Options options{.replicas = 4,
                                .devices = devices,
                                .batch_size = 4,
                                .other_batch_sizes = {3},
                                .seed = 5,
                                .groups = std::move(with),
                                .moving_average = {.decay = 0.9}};
    options.optimizer = {.optimizer = {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01}, .max_norm = 1};
    return options;
}

using Values = std::map<std::string, std::vector<float>>;

/// The parts of an arena by their names; an arena of the trained parameters lacks the others.
template <class N>
Values by_name(const std::vector<float>& arena) {
    Values values;
    for (std::size_t i = 0; i < N::layers.size(); ++i) {
        for (std::size_t p = 0; p < N::layers[i].parameters.count; ++p) {
            const std::int64_t offset = N::layers[i].offsets[p], size = N::layers[i].parameters.list[p].shape.size();
            if (offset >= static_cast<std::int64_t>(arena.size())) continue;
            values[parameter_name(N::layers, i, p)] = {arena.begin() + offset, arena.begin() + offset + size};
        }
    }
    return values;
}

struct Ended {
    std::vector<Values> parameters;
    Values averages, momentum;
    std::vector<float> buffers;
    std::vector<double> losses;
    Evaluation averaged;
};

template <class T>
Ended ended(const typename T::Options& options, int steps) {
    using N = typename T::NetworkType;
    T training(options);
    Ended result;
    for (int s = 0; s < steps; ++s) result.losses.push_back(training.step(batch).loss);
    const TrainingState state = training.state();
    result.parameters.push_back(by_name<N>(state.parameters));
    for (const ReplicaState& each : state.replicas) result.parameters.push_back(by_name<N>(each.parameters));
    result.averages = by_name<N>(state.averages);
    const auto& optimizer = state.replicas.empty() ? state.optimizer : state.replicas[0].optimizer;
    result.momentum = by_name<N>(optimizer[0].values);
    result.buffers = state.buffers;
    result.averaged =
        training.evaluate([](std::int64_t i, int, HostContext& c) { return batch(i, 0, c); }, 3, Weights::averages);
    CHECK(training.healthy());
    return result;
}

/// Whether the frozen training ended as the one with groups: all parameters, and the other arenas of what is trained.
void check_equal(const Ended& frozen, const Ended& grouped) {
    CHECK(frozen.parameters == grouped.parameters);
    CHECK(frozen.losses == grouped.losses);
    CHECK(frozen.buffers == grouped.buffers);
    CHECK(frozen.averaged.loss == grouped.averaged.loss);
    CHECK(frozen.averages.size() == 6);
    CHECK(frozen.momentum.size() == 6);
    for (const auto& [name, values] : frozen.averages) CHECK(values == grouped.averages.at(name));
    for (const auto& [name, values] : frozen.momentum) CHECK(values == grouped.momentum.at(name));
}

template <class N, class D, class A, class S>
void check_against_groups(int accumulation = 1) {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        using F = Training<Tuned, D, A, S>;
        using G = Training<N, D, A, S>;
        auto frozen = options_for<F>(devices, groups_of_tuned);
        auto grouped = options_for<G>(devices, parameter_groups);
        frozen.gradient_accumulation_steps = grouped.gradient_accumulation_steps = accumulation;
        if constexpr (requires { frozen.averaging.every; }) frozen.averaging.every = grouped.averaging.every = 4;
        check_equal(ended<F>(frozen, 6), ended<G>(grouped, 6));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("frozen parameters and a frozen group give the same bits, for every kind of agreement", D, Host,
                   Delayed) {
    check_against_groups<Net, D, ConcatMean, Pooled>();
    check_against_groups<Net, D, MeanInDouble, FirstReplica>();
    check_against_groups<Net, D, DeviceSum, AllReplicas>();
    check_against_groups<Net, D, LocalSgd, Pooled>();
}

TEST_CASE("so they do with accumulated batches, in bfloat16, and with statistics of the global batch") {
    check_against_groups<Net, Host, ConcatMean, Pooled>(2);
    check_against_groups<Net, Host, ConcatMean, Synchronized>();
    if (!computes_bfloat16()) return;
    using F = Training<Tuned16, Host>;
    using G = Training<Net16, Host>;
    check_equal(ended<F>(options_for<F>(2, groups_of_tuned), 4), ended<G>(options_for<G>(2, parameter_groups), 4));
}

TEST_CASE("a network of several outputs may be frozen below one of them") {
    struct Heads : Sequential<Input<6, 6, 3>, Flatten, Named<"body", Linear<6>>, Sigmoid, Output<"early">,
                              Named<"head", Linear<5>>, Output<"kind">> {};
    struct TunedHeads : Frozen<Heads, "body.*"> {};
    using Loss = Losses<At<"early", CrossEntropy<6>, "target">, At<"kind", CrossEntropy<5>, "target">>;
    DataParallel<TunedHeads, Loss, Sgd, ConcatMean, Host> frozen({.replicas = 2, .batch_size = 4, .seed = 5});
    DataParallel<Heads, Loss, Sgd, ConcatMean, Host> grouped(
        {.replicas = 2, .batch_size = 4, .seed = 5, .groups = {{.pattern = "body.*", .frozen = true}}});
    const auto four = [](std::int64_t step, int replica, HostContext& c) { return batch(3 * step, replica, c); };
    for (int s = 0; s < 3; ++s) CHECK(frozen.step(four).loss == grouped.step(four).loss);
    CHECK(by_name<TunedHeads>(frozen.parameters()) == by_name<Heads>(grouped.parameters()));
}

TYPED_TEST_CASE("every optimiser leaves frozen parameters alone", O, EachOptimizer) {
    using F = Training<Tuned, Host, ConcatMean, Pooled, O>;
    using G = Training<Net, Host, ConcatMean, Pooled, O>;
    F frozen({.batch_size = 4, .seed = 5, .optimizer = {.weight_decay = 0.1}});
    G grouped({.batch_size = 4,
               .seed = 5,
               .optimizer = {.weight_decay = 0.1},
               .groups = {{.pattern = "*1.*", .frozen = true}, {.pattern = "hidden.*", .frozen = true}}});
    const auto whole = [](std::int64_t step, int, HostContext& c) { return batch(3 * step, 0, c); };
    for (int s = 0; s < 3; ++s) {
        frozen.step(whole);
        grouped.step(whole);
    }
    CHECK(by_name<Tuned>(frozen.parameters()) == by_name<Net>(grouped.parameters()));
}

TEST_CASE("frozen norms keep and use their running statistics, and the others do not") {
    using T = Training<TunedRunning, Host>;
    auto options = options_for<T>(1, {});
    options.replicas = 1;
    T training(options);
    TrainingState state = training.state();
    for (const RunningStatistics& norm : running_statistics(Net::layers)) {
        for (std::int64_t c = 0; c < norm.channels; ++c) {
            state.buffers[static_cast<std::size_t>(norm.mean + c)] = 0.25F;
            state.buffers[static_cast<std::size_t>(norm.variance + c)] = 2;
        }
    }
    training.restore(state);
    training.step(batch);
    const TrainingState after = training.state();
    const auto norms = running_statistics(Net::layers);
    REQUIRE(norms.size() == 2);
    const auto part = [&](const std::vector<float>& buffers, std::size_t norm) {
        const auto begin = buffers.begin() + norms[norm].mean;
        return std::vector<float>(begin, begin + norms[norm].channels);
    };
    CHECK(part(after.buffers, 0) == part(state.buffers, 0));
    CHECK(part(after.buffers, 1) != part(state.buffers, 1));
    // The first norm's output does not depend on the batch's statistics: that of one sample is the same in another batch.
    const auto outputs_of = [&](std::int64_t size) {
        std::vector<float> seen;
        T again(options);
        again.restore(state);
        const auto some = [&](std::int64_t, int, HostContext& c) {
            BatchView view = batch(0, 0, c);
            view.size = size;
            return view;
        };
        again.step(some, [&](const Inspection<Host>& inspection) {
            CHECK(inspection.averaged_gradient().size() == static_cast<std::size_t>(TunedRunning::trained_elements));
            CHECK(inspection.parameters().size() == static_cast<std::size_t>(TunedRunning::parameter_elements));
            inspection.for_each_activation([&](std::size_t layer, std::span<const float> values) {
                if (layer == 1) seen.assign(values.begin(), values.begin() + 144);
            });
        });
        return seen;
    };
    CHECK(outputs_of(4) == outputs_of(3));
}

TEST_CASE("a plan packs what training has changed, and all weights where others may have changed") {
    Host::Context context(0, {.threads = 1});
    const auto team = context.team();
    impl::Plans<Host, float> plans;
    plans.start(context);
    const PlanOptions training{.batch = 4}, evaluation{.batch = 4, .training = false};
    for (const PlanOptions& each : {training, evaluation}) plans.add(&Plan<Host>::make<TunedRunning>, each);
    plans.allocate(plans.largest().total(), 1);
    const float parameters[1]{}, others[1]{};
    const auto packs = [&](const PlanOptions& options, const float* of) { return plans.take(options, of).packs; };
    CHECK(packs(training, parameters) == Packing::all);
    CHECK(packs(training, parameters) == Packing::none);
    plans.trained_parameters_changed();
    CHECK(packs(training, parameters) == Packing::trained);
    CHECK(packs(training, parameters) == Packing::none);
    plans.parameters_changed();
    CHECK(packs(training, parameters) == Packing::all);
    CHECK(packs(training, others) == Packing::all);
    CHECK(packs(evaluation, others) == Packing::all);
    CHECK(packs(evaluation, others) == Packing::none);
    // The statistics that are folded into frozen weights may be those of a norm that is trained.
    plans.trained_parameters_changed();
    CHECK(packs(evaluation, others) == Packing::all);
    CHECK(packs(training, others) == Packing::all);
    plans.clear();
    // Where nothing is frozen, a pass has one sequence of kernels.
    impl::Plans<Host, float> whole;
    whole.start(context);
    whole.add(&Plan<Host>::make<Net>, training);
    whole.allocate(whole.largest().total(), 1);
    CHECK(whole.take(training, parameters).packs == Packing::all);
    whole.trained_parameters_changed();
    CHECK(whole.take(training, parameters).packs == Packing::all);
    CHECK(whole.take(training, parameters).packs == Packing::none);
    whole.clear();
}

TEST_CASE("frozen weights and statistics that are replaced between two steps count in the next") {
    using T = Training<TunedRunning, Host>;
    auto options = options_for<T>(2, {});
    const auto evaluate = [](T& training) {
        return training.evaluate([](std::int64_t i, int, HostContext& c) { return batch(i, 0, c); }, 3).loss;
    };
    T first(options);
    for (int s = 0; s < 3; ++s) {
        first.step(batch);
        static_cast<void>(evaluate(first));
    }
    TrainingState state = first.state();
    for (float& value : std::span(state.parameters).subspan(static_cast<std::size_t>(TunedRunning::trained_elements)))
        value *= 1.5F;
    for (float& value : state.buffers) value += 0.5F;
    first.restore(state);
    T second(options);
    second.restore(state);
    CHECK(first.step(batch).loss == second.step(batch).loss);
    CHECK(evaluate(first) == evaluate(second));
    std::vector<float> values = first.parameters();
    for (float& value : std::span(values).subspan(static_cast<std::size_t>(TunedRunning::trained_elements)))
        value *= 0.5F;
    for (T* each : {&first, &second}) each->set_parameters(values);
    // Evaluated in between, all weights are packed again.
    static_cast<void>(evaluate(second));
    CHECK(first.step(batch).loss == second.step(batch).loss);
    CHECK(first.parameters() == second.parameters());
    CHECK(first.parameters() != values);
}

TEST_CASE("gradients, optimiser state and moving averages have the trained parameters alone, and the report says so") {
    using F = Training<Tuned, Host>;
    using G = Training<Net, Host>;
    F frozen(options_for<F>(2, {}));
    G whole(options_for<G>(2, {}));
    const std::size_t trained = static_cast<std::size_t>(Tuned::trained_elements) * sizeof(float),
                      all = static_cast<std::size_t>(Net::parameter_elements) * sizeof(float);
    CHECK(trained < all / 2);
    const MemoryReport &a = frozen.memory(), &b = whole.memory();
    CHECK(a.parameters == all);
    CHECK(a.frozen == all - trained);
    CHECK(b.frozen == 0);
    CHECK(a.optimizer_state == trained);
    CHECK(a.moving_average == trained);
    CHECK(a.gradients == 4 * trained);
    CHECK(a.average == trained);
    CHECK(b.gradients == 4 * all);
    CHECK(a.plan.activations < b.plan.activations);
    CHECK(a.plan.saved < b.plan.saved);
    CHECK(contains(to_string(a), text(" parameters (", bytes_text(a.frozen), " frozen) + ")));
    CHECK_FALSE(contains(to_string(b), "frozen"));
    frozen.step(batch);
    CHECK(frozen.gradient(1).size() == trained / sizeof(float));
    CHECK(frozen.averaged_gradient().size() == trained / sizeof(float));
}

TEST_CASE("a checkpoint has all parameters, the averages of those that are trained, and continues with the same bits") {
    using F = Training<Tuned, Host>;
    const io_tests::TemporaryFolder folder;
    F whole(options_for<F>(2, {})), first(options_for<F>(2, {})), second(options_for<F>(1, {}));
    for (int s = 0; s < 6; ++s) whole.step(batch);
    for (int s = 0; s < 3; ++s) first.step(batch);
    const std::string path = folder.path("model.safetensors");
    write_checkpoint(path, Tuned::layers, {.state = first.state()});
    const SafetensorsFile file(path);
    for (const char* const name : {"conv1.weight", "hidden.bias", "head.weight", "ema.head.weight",
                                   "optimizer.momentum_buffer.conv2.weight", "norm1.running_mean"})
        CHECK_MESSAGE(file.find(name) != nullptr, name);
    for (const char* const name : {"ema.conv1.weight", "optimizer.momentum_buffer.hidden.weight"})
        CHECK_MESSAGE(file.find(name) == nullptr, name);
    second.restore(read_checkpoint(path, Tuned::layers).state);
    for (int s = 0; s < 3; ++s) second.step(batch);
    CHECK(second.parameters() == whole.parameters());
    CHECK(second.state().averages == whole.state().averages);

    // Prediction takes the averages, and the frozen parameters as they are.
    const Predictor<Tuned> predictor(path, {.max_batch = 4});
    CHECK(predictor.weights() == Weights::averages);
    HostContext context(0, {});
    const BatchView samples = batch(0, 0, context);
    std::vector<float> outputs(4 * 5);
    predictor.predict({samples.inputs(), 4 * 108}, outputs);
    const TensorView<const float, F::InputExtents> view(samples.inputs(), 4);
    const std::vector<float> expected = first.predict(view, Weights::averages);
    for (std::size_t i = 0; i < outputs.size(); ++i) CHECK(outputs[i] == doctest::Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("the state of a training with other frozen parameters is rejected, by its file and by itself") {
    using F = DataParallel<Tuned, CrossEntropy<5>, Sgd, ConcatMean, Host>;
    using G = DataParallel<Net, CrossEntropy<5>, Sgd, ConcatMean, Host>;
    F frozen({.batch_size = 4});
    G whole({.batch_size = 4});
    CHECK(
        message_of<InvalidArgument>([&] { frozen.restore(whole.state()); }) ==
        "the state belongs to a training with other frozen parameters: its conv1.weight is trained, and this "
        "network's conv1.weight is frozen; the optimiser's state and the moving averages of another freezing cannot be "
        "continued, and load_parameters reads the parameters alone from a checkpoint");
    CHECK(
        message_of<InvalidArgument>([&] { whole.restore(frozen.state()); }) ==
        "the state belongs to a training with other frozen parameters: its conv1.weight is frozen, and this "
        "network's conv1.weight is trained; the optimiser's state and the moving averages of another freezing cannot be "
        "continued, and load_parameters reads the parameters alone from a checkpoint");
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("model.safetensors");
    CHECK(
        contains(message_of<InvalidArgument>([&] { write_checkpoint(path, Tuned::layers, {.state = whole.state()}); }),
                 "its conv1.weight is trained, and this network's conv1.weight is frozen"));
    using M = Training<Net, Host>;
    M averaged(options_for<M>(1, {}));
    write_checkpoint(path, Net::layers, {.state = averaged.state()});
    CHECK(
        message_of<DataError>([&] { (void)read_checkpoint(path, Tuned::layers); }) ==
        path +
            " is the checkpoint of a training with other frozen parameters: conv1.weight is trained there and frozen "
            "here; its optimiser's state and moving averages cannot be continued, and load_parameters reads the parameters "
            "alone");
    using T = Training<Tuned, Host>;
    T tuned(options_for<T>(1, {}));
    write_checkpoint(path, Tuned::layers, {.state = tuned.state()});
    CHECK(
        message_of<DataError>([&] { (void)read_checkpoint(path, Net::layers); }) ==
        path +
            " is the checkpoint of a training with other frozen parameters: conv1.weight is frozen there and trained "
            "here; its optimiser's state and moving averages cannot be continued, and load_parameters reads the parameters "
            "alone");
}

TEST_CASE_TEMPLATE("prediction and evaluation take the checkpoint of a training with other frozen parameters", From,
                   Tuned, TunedRunning, Net) {
    using Source = Training<From, Host>;
    Source source(options_for<Source>(1, {}));
    for (int s = 0; s < 4; ++s) source.step(batch);
    HostContext context(0, {});
    const BatchView samples = batch(0, 0, context);
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("model-4.safetensors");
    const Checkpoint checkpoint{.state = source.state()};
    write_checkpoint(path, From::layers, checkpoint);
    REQUIRE(source.predict(samples, Weights::averages) != source.predict(samples));

    const auto check = [&]<class To>(const To&) {
        for (const Weights weights : {Weights::trained, Weights::averages}) {
            const std::vector<float> expected = source.predict(samples, weights);
            const auto same = [&](const Predictor<To>& predictor) {
                std::vector<float> outputs(expected.size());
                predictor.predict(samples, outputs);
                for (std::size_t i = 0; i < outputs.size(); ++i)
                    CHECK(outputs[i] == doctest::Approx(expected[i]).epsilon(1e-4));
            };
            same(Predictor<To>(path, {.max_batch = 4, .weights = weights}));
            same(Predictor<To>(checkpoint, "the state", {.max_batch = 4, .weights = weights}));
            const FoundCheckpoint found = newest_valid_checkpoint(folder.path(""), To::layers, FrozenInFile::any);
            REQUIRE(found.checkpoint);
            same(Predictor<To>(*found.checkpoint, found.path, {.max_batch = 4, .weights = weights}));

            using Target = DataParallel<To, CrossEntropy<5>, Sgd, ConcatMean, Host>;
            Target target({.batch_size = 4});
            const LoadReport report = load_parameters(target, path, {.weights = weights, .require_all = true});
            CHECK(report.unused.empty());
            const std::vector<float> outputs = target.predict(samples);
            for (std::size_t i = 0; i < outputs.size(); ++i)
                CHECK(outputs[i] == doctest::Approx(expected[i]).epsilon(1e-4));
        }
    };
    check(Net{});
    check(Tuned{});
    check(TunedRunning{});
}

TEST_CASE(
    "a Predictor rejects a state whose tensors or arenas are those of another network, with the first difference") {
    using F = DataParallel<Tuned, CrossEntropy<5>, Sgd, ConcatMean, Host>;
    F training({.batch_size = 4});
    Checkpoint checkpoint{.state = training.state()};
    checkpoint.state.tensors[2].shape = Shape{2, 2};
    CHECK(
        message_of<DataError>([&] { (void)Predictor<Net>(checkpoint, "the state"); }) ==
        "the state cannot be used: the state belongs to another network: its norm1.weight is 2 x 2, and this network's "
        "norm1.weight is 4");
    checkpoint.state = training.state();
    checkpoint.state.averages.assign(7, 0.0F);
    CHECK(message_of<DataError>([&] { (void)Predictor<Net>(checkpoint, "the state"); }) ==
          text("the state cannot be used: the state has ", Net::parameter_elements,
               " elements of parameters and 7 of moving averages, and this network has ", Net::parameter_elements,
               " and ", Tuned::trained_elements));
}

TEST_CASE("a group for frozen parameters alone is an error that lists those that are trained") {
    using F = Training<Tuned, Host>;
    CHECK(message_of<InvalidArgument>([&] { F training(options_for<F>(1, {{.pattern = "hidden.*", .rate = 2}})); }) ==
          "the parameter group 'hidden.*' matches none of the parameters that are trained: conv2.weight, conv2.bias, "
          "norm2.weight, norm2.bias, head.weight, head.bias");
}

TEST_CASE("a gradient that is not finite is named, and a step that diverges leaves all parameters as they were") {
    using F = DataParallel<Tuned, CrossEntropy<5>, Sgd, ConcatMean, Host>;
    F training({.batch_size = 4, .optimizer = {.learning_rate = 0.1}});
    const std::vector<float> before = training.parameters();
    std::vector<float> samples(4 * 108, std::numeric_limits<float>::infinity());
    const std::vector<std::int32_t> labels(4);
    CHECK(contains(message_of<DivergedError>([&] {
                       training.step([&](std::int64_t, int, HostContext&) {
                           return BatchView(samples.data(), labels.data(), 4, Shape{6, 6, 3});
                       });
                   }),
                   "sample 0 of its batch is not finite"));
    CHECK(training.parameters() == before);
}
