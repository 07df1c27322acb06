// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/inference_streams.hpp, cupola/predict.hpp
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/predict.hpp>

#include "../test.hpp"

#include <unistd.h>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

using tutorial::difference;
using Net = tutorial::SmallNet;

namespace {

constexpr auto sample_size = static_cast<std::size_t>(Net::input_shape.size());
constexpr std::size_t output_size = 10;

/// A training after a few steps, whose moving averages have moved away from the parameters.
class Trained {
public:
    Trained()
        : training(
              {.batch_size = 8, .seed = 3, .optimizer = {.learning_rate = 0.05}, .moving_average = {.decay = 0.9999}}) {
        InMemoryBatches batches(data(), {.batch_size = 8, .seed = 1});
        for (int i = 0; i < 6; ++i) training.step(batches);
        checkpoint.state = training.state();
    }
    static const std::vector<float>& samples() {
        static const std::vector<float> values = [] {
            std::vector<float> result(40 * sample_size);
            for (std::size_t i = 0; i < result.size(); ++i)
                result[i] = uniform(RandomStream(5, RngDomain::user, 0, i).words(0)[0]) - 0.5F;
            return result;
        }();
        return values;
    }
    static const InMemory& data() {
        static const std::vector<std::int32_t> labels = [] {
            std::vector<std::int32_t> result(40);
            for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::int32_t>(i % 10);
            return result;
        }();
        static const InMemory memory(Net::input_shape, samples(), labels, 10);
        return memory;
    }
    tutorial::SmallTraining<> training;
    Checkpoint checkpoint;
};

std::vector<float> outputs_of(const Predictor<Net>& predictor, std::size_t first, std::size_t count) {
    std::vector<float> outputs(count * output_size);
    predictor.predict(std::span(Trained::samples()).subspan(first * sample_size, count * sample_size), outputs);
    return outputs;
}

struct TemporaryFile {
    TemporaryFile() { close(mkstemp(path.data())); }
    ~TemporaryFile() { unlink(path.c_str()); }
    std::string path = "/tmp/cupola-predict-XXXXXX";
};

}  // namespace

TEST_CASE("a checkpoint gives the outputs of its training, by default those of the averages") {
    Trained trained;
    const TemporaryFile file;
    write_checkpoint(file.path, Net::layers, trained.checkpoint);
    const auto view = [&](std::int64_t count) {
        return TensorView<const float, Extents<24, 24, 3>>(Trained::samples().data(), count);
    };
    const std::vector<float> parameters = trained.training.predict(view(8));
    const std::vector<float> averages = trained.training.predict(view(8), Weights::averages);
    REQUIRE(difference(parameters, averages) > 1e-3);

    const Predictor<Net> as_it_comes(file.path, {.max_batch = 8});
    CHECK(as_it_comes.weights() == Weights::averages);
    CHECK(as_it_comes.step() == 6);
    CHECK(difference(outputs_of(as_it_comes, 0, 8), averages) < 1e-6);
    const Predictor<Net> plain(file.path, {.max_batch = 8, .weights = Weights::trained});
    CHECK(plain.weights() == Weights::trained);
    CHECK(difference(outputs_of(plain, 0, 8), parameters) < 1e-6);
}

TEST_CASE("without averages the trained parameters are used, and a request for averages is rejected") {
    Trained trained;
    trained.checkpoint.state.averages.clear();
    CHECK(Predictor<Net>(trained.checkpoint, "x").weights() == Weights::trained);
    CHECK(message_of<DataError>([&] {
              (void)Predictor<Net>(trained.checkpoint, "run/model-6.safetensors", {.weights = Weights::averages});
          }) ==
          "run/model-6.safetensors has no moving averages: the training kept none, or the file is not one of a Cupola "
          "training");
}

TEST_CASE("a batch of every size up to the largest gives the outputs of its samples one by one") {
    Trained trained;
    const Predictor<Net> one(trained.checkpoint, "x");
    CHECK(one.max_batch() == 1);
    std::vector<float> expected;
    for (std::size_t i = 0; i < 40; ++i) {
        const std::vector<float> outputs = outputs_of(one, i, 1);
        expected.insert(expected.end(), outputs.begin(), outputs.end());
    }
    for (const std::int64_t max_batch : {2, 3, 7, 16, 37}) {
        CAPTURE(max_batch);
        const Predictor<Net> predictor(trained.checkpoint, "x", {.max_batch = max_batch});
        for (std::int64_t count = 1; count <= max_batch; ++count) {
            CAPTURE(count);
            const auto n = static_cast<std::size_t>(count);
            const std::vector<float> outputs = outputs_of(predictor, 3, n);
            CHECK(difference(outputs, std::span(expected).subspan(3 * output_size, n * output_size)) < 1e-5);
        }
    }
}

TEST_CASE("any number of threads may predict at the same time, with any number of streams") {
    Trained trained;
    for (const int streams : {1, 3}) {
        CAPTURE(streams);
        const Predictor<Net> predictor(trained.checkpoint, "x", {.max_batch = 5, .streams = streams});
        CHECK(predictor.streams() == streams);
        std::vector<std::vector<float>> expected;
        for (std::size_t i = 0; i < 8; ++i) expected.push_back(outputs_of(predictor, i, 1 + i % 5));
        std::vector<int> wrong(8, 0);
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 8; ++t) {
            threads.emplace_back([&, t] {
                for (std::size_t round = 0; round < 30; ++round) {
                    const std::size_t i = (t + round) % 8;
                    wrong[t] += outputs_of(predictor, i, 1 + i % 5) == expected[i] ? 0 : 1;
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(wrong == std::vector<int>(8, 0));
    }
}

TEST_CASE("two OpenMP threads per stream, and a predictor that was moved, give the same outputs") {
    Trained trained;
    const std::vector<float> expected = outputs_of(Predictor<Net>(trained.checkpoint, "x", {.max_batch = 8}), 0, 8);
    Predictor<Net> two(trained.checkpoint, "x", {.max_batch = 8, .device = {.threads = 2}});
    CHECK(difference(outputs_of(two, 0, 8), expected) < 1e-5);
    const Predictor<Net> moved = std::move(two);
    CHECK(difference(outputs_of(moved, 0, 8), expected) < 1e-5);
}

namespace {
struct Normalized : Sequential<Input<1, 1, 2>, Named<"bn", BatchNorm2d<>>> {};
}  // namespace

TEST_CASE("batch normalisation uses the running statistics of the checkpoint") {
    Checkpoint checkpoint;
    checkpoint.state.parameters.resize(static_cast<std::size_t>(Normalized::parameter_elements));
    checkpoint.state.buffers = initial_buffers(Normalized::layers);
    const LayerInfo& layer = Normalized::layers[0];
    const auto set = [](std::vector<float>& arena, std::int64_t offset, float first, float second) {
        arena[static_cast<std::size_t>(offset)] = first;
        arena[static_cast<std::size_t>(offset) + 1] = second;
    };
    set(checkpoint.state.parameters, layer.offsets[0], 2, 3);
    set(checkpoint.state.parameters, layer.offsets[1], 10, 20);
    set(checkpoint.state.buffers, layer.buffer_offsets[0], 1, -1);
    set(checkpoint.state.buffers, layer.buffer_offsets[1], 4, 9);
    const Predictor<Normalized> predictor(checkpoint, "x");
    const std::vector<float> samples{5, 8};
    std::vector<float> outputs(2);
    predictor.predict(samples, outputs);
    CHECK(outputs[0] == doctest::Approx(2 * (5 - 1) / 2.0 + 10).epsilon(1e-4));
    CHECK(outputs[1] == doctest::Approx(3 * (8 + 1) / 3.0 + 20).epsilon(1e-4));
}

TEST_CASE("sizes that do not fit are rejected, and the next call works as before") {
    Trained trained;
    const Predictor<Net> predictor(trained.checkpoint, "x", {.max_batch = 2});
    const std::vector<float> expected = outputs_of(predictor, 0, 2);
    std::vector<float> outputs(20);
    const auto refused = [&](std::size_t values, std::size_t room) {
        return message_of<InvalidArgument>(
            [&] { predictor.predict(std::span(Trained::samples()).first(values), std::span(outputs).first(room)); });
    };
    CHECK(refused(0, 0) == "samples of this network have 1728 values each, and 0 were given");
    CHECK(refused(1727, 10) == "samples of this network have 1728 values each, and 1727 were given");
    CHECK(refused(3 * 1728, 20) == "this predictor takes at most 2 samples at a time, and 3 were given");
    CHECK(refused(1728, 20) == "the outputs of 1 sample are 10 values, and there is room for 20");
    CHECK(refused(2 * 1728, 10) == "the outputs of 2 samples are 20 values, and there is room for 10");
    CHECK(outputs == std::vector<float>(20));
    CHECK(outputs_of(predictor, 0, 2) == expected);
}

namespace {

struct Convolved : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, ReLU, Flatten, Linear<2>> {};
struct Wide : Sequential<Input<8, 8, 16>, Conv2d<16, 3>, ReLU, Flatten, Linear<2>> {};
struct Perceptron : Sequential<Input<108>, Linear<4>, ReLU, Linear<2>> {};
struct Folded : Sequential<Input<6, 6, 3>, Conv2d<4, 3, no_bias>, BatchNorm2d<>, ReLU, Flatten, Linear<2>> {};
struct Narrow : InPrecision<MixedBFloat16, Convolved> {};

/// Three samples, the second with a NaN or an infinity: rejected, and the next call is unaffected.
template <class N>
void check_non_finite_inputs(const HostOptions& device) {
    Checkpoint checkpoint;
    checkpoint.state.parameters.assign(static_cast<std::size_t>(N::parameter_elements), 0.125F);
    checkpoint.state.buffers = initial_buffers(N::layers);
    const Predictor<N> predictor(checkpoint, "x", {.max_batch = 3, .device = device});
    constexpr auto size = static_cast<std::size_t>(N::input_shape.size());
    std::vector<float> samples(3 * size, 0.5F), outputs(6, -7.0F), expected(6);
    predictor.predict(samples, expected);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        samples[2 * size - 1] = bad;
        std::string last;
        for (std::size_t i = 0; i < N::input_shape.rank; ++i) last += text(i == 0 ? "" : ", ", N::input_shape[i] - 1);
        CHECK(message_of<InvalidArgument>([&] { predictor.predict(samples, outputs); }) ==
              text("the input of a network must be finite, but sample 1 is ", bad, " at [", last, ']'));
        CHECK(outputs == std::vector<float>(6, -7.0F));
    }
    samples[2 * size - 1] = 0.5F;
    predictor.predict(samples, outputs);
    CHECK(outputs == expected);
}

}  // namespace

TEST_CASE("a sample with a NaN or an infinity is rejected on every path") {
    check_non_finite_inputs<Convolved>({});
    check_non_finite_inputs<Wide>({.convolution = &winograd});
    check_non_finite_inputs<Perceptron>({});
    check_non_finite_inputs<Folded>({});
    if (Host::library_isa().starts_with("avx512")) check_non_finite_inputs<Narrow>({});
}

TEST_CASE("a checkpoint with a non-finite number, or of another size, is rejected by name") {
    Checkpoint checkpoint;
    checkpoint.state.parameters.resize(static_cast<std::size_t>(Normalized::parameter_elements));
    checkpoint.state.buffers = initial_buffers(Normalized::layers);
    const Checkpoint good = checkpoint;
    const auto refused = [&] { return message_of<DataError>([&] { (void)Predictor<Normalized>(checkpoint, "x"); }); };
    const LayerInfo& layer = Normalized::layers[0];
    checkpoint.state.parameters[static_cast<std::size_t>(layer.offsets[1])] = std::numeric_limits<float>::quiet_NaN();
    CHECK(refused() == "x cannot be used: bn.bias is nan at [0]");
    checkpoint = good;
    checkpoint.state.buffers[static_cast<std::size_t>(layer.buffer_offsets[1]) + 1] = -1e-3F;
    CHECK(refused() == "x cannot be used: bn.running_var is -0.001 at [1]");
    checkpoint = good;
    checkpoint.state.buffers.clear();
    CHECK(contains(refused(), "x is a checkpoint of another network: it has "));
    checkpoint = good;
    checkpoint.state.parameters.pop_back();
    CHECK(contains(refused(), "x is a checkpoint of another network: it has "));
    CHECK(Predictor<Normalized>(good, "x").max_batch() == 1);
}

TEST_CASE("a training rejects non-finite samples in predict and in evaluate") {
    Trained trained;
    std::vector<float> samples(Trained::samples().begin(), Trained::samples().begin() + 8 * sample_size);
    samples[3 * sample_size + 1] = std::numeric_limits<float>::infinity();
    CHECK(message_of<InvalidArgument>([&] {
              (void)trained.training.predict({samples.data(), 8});
          }) == "the input of a network must be finite, but sample 3 is inf at [0, 0, 1]");
    const std::vector<std::int32_t> labels(8);
    const InMemory data(Net::input_shape, samples, labels, 10);
    CHECK(message_of<InvalidArgument>([&] {
              (void)evaluate(trained.training, EvaluationBatches(data, IdentityTransform{}, 2));
          }) == "the input of a network must be finite, but in batch 1 sample 1 is inf at [0, 0, 1]");
}

TEST_CASE("invalid options, missing files and checkpoints of other networks are rejected") {
    Trained trained;
    const auto refused = [&](const PredictorOptions<Host>& options) {
        return message_of<InvalidArgument>([&] { (void)Predictor<Net>(trained.checkpoint, "x", options); });
    };
    CHECK(refused({.max_batch = 0}) == "the largest batch must have 1 to 1000000 samples, not 0");
    CHECK(refused({.max_batch = 1'000'001}) == "the largest batch must have 1 to 1000000 samples, not 1000001");
    CHECK(refused({.streams = 0}) == "there must be 1 to 4096 streams, not 0");
    CHECK(refused({.streams = 5000}) == "there must be 1 to 4096 streams, not 5000");
    CHECK(refused({.device = {.threads = 0}}) == "a host device must have 1 to 4096 threads, not 0");
    CHECK(contains(message_of<DataError>([] { (void)Predictor<Net>("/no/such/file"); }), "/no/such/file"));
    const TemporaryFile file;
    write_checkpoint(file.path, Net::layers, trained.checkpoint);
    const std::string other = message_of<DataError>([&] { (void)Predictor<tutorial::Net>(file.path); });
    CHECK(contains(other, file.path + " is a checkpoint of another network"));
    CHECK(truncate(file.path.c_str(), 1000) == 0);
    CHECK(contains(message_of<DataError>([&] { (void)Predictor<Net>(file.path); }), file.path));
}

TEST_CASE("a lack of memory is reported with the numbers") {
    Checkpoint checkpoint;
    checkpoint.state.parameters.resize(static_cast<std::size_t>(tutorial::Net::parameter_elements));
    const std::string refused = message_of<OutOfMemory>(
        [&] { (void)Predictor<tutorial::Net>(checkpoint, "x", {.max_batch = 1'000'000, .streams = 2}); });
    CHECK(contains(refused, "2 streams of at most 1000000 samples need "));
    CHECK(contains(refused, " GB are available"));
}

namespace {

struct Heads : Sequential<Input<6>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<2>,
                          Output<"box">> {};
using HeadsTraining =
    DataParallel<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>, Sgd, ConcatMean, Host>;

}  // namespace

TEST_CASE("the outputs of a network with several are predicted by their names") {
    HeadsTraining training({.batch_size = 7, .seed = 2});
    Checkpoint checkpoint;
    checkpoint.state = training.state();
    const Predictor<Heads> predictor(checkpoint, "x", {.max_batch = 7});
    std::vector<float> samples(7 * 6), kinds(7 * 3), boxes(7 * 2);
    for (std::size_t i = 0; i < samples.size(); ++i)
        samples[i] = uniform(RandomStream(5, RngDomain::user, 0, i).words(0)[0]) - 0.5F;
    const TensorView<const float, Extents<6>> view(samples.data(), 7);
    const std::vector<float> all_kinds = training.predict(view, "kind"), all_boxes = training.predict(view, "box");
    CHECK(training.predict(view) == all_boxes);
    REQUIRE(all_kinds.size() == 7 * 3);

    // A call is run in parts of 7, 4 and 1 samples.
    for (const std::size_t count : {7U, 6U, 1U}) {
        CAPTURE(count);
        const std::span<const float> some(samples.data(), 6 * count);
        const std::span<float> some_kinds(kinds.data(), 3 * count), some_boxes(boxes.data(), 2 * count);
        const auto agree = [&](std::span<const float> values, const std::vector<float>& all) {
            return difference(values, std::span(all).first(values.size())) < 1e-6;
        };
        predictor.predict(some, {{"box", some_boxes}, {"kind", some_kinds}});
        CHECK(agree(some_kinds, all_kinds));
        CHECK(agree(some_boxes, all_boxes));
        std::fill(kinds.begin(), kinds.end(), 9.0F);
        std::fill(boxes.begin(), boxes.end(), 9.0F);
        predictor.predict(some, {{"kind", some_kinds}});
        CHECK(agree(some_kinds, all_kinds));
        CHECK(boxes == std::vector<float>(7 * 2, 9.0F));
        predictor.predict(some, some_boxes);  // the last
        CHECK(agree(some_boxes, all_boxes));
    }

    const auto refusal = [&](std::initializer_list<NamedOutput> outputs) {
        return message_of<InvalidArgument>([&] { predictor.predict(samples, outputs); });
    };
    CHECK(refusal({{"kinds", kinds}}) == "the network has no output \"kinds\"; its outputs are: kind, box");
    CHECK(refusal({{"kind", boxes}}) == "the output kind of 7 samples is 21 values, and there is room for 14");
    CHECK(refusal({{"kind", kinds}, {"kind", kinds}}) == "the output kind is given twice");
    CHECK(refusal({}) == "predict needs at least one output");
    CHECK(message_of<InvalidArgument>([&] { (void)training.predict(view, "kinds"); }) ==
          "the network has no output \"kinds\"; its outputs are: kind, box");
    Trained trained;
    CHECK(message_of<InvalidArgument>([&] {
              Predictor<Net>(trained.checkpoint, "x")
                  .predict(std::span(Trained::samples()).first(sample_size), {{"fc", kinds}});
          }) == "the network has no output \"fc\"; its outputs are: one without a name");
}

TEST_CASE("a checkpoint of another activation is refused; other dropout and other frozen parameters are not") {
    struct Plain : Sequential<Input<2>, Named<"a", Linear<3>>, ReLU, Named<"b", Linear<2>>> {};
    struct Squashed : Sequential<Input<2>, Named<"a", Linear<3>>, Sigmoid, Named<"b", Linear<2>>> {};
    struct Dropped
        : Sequential<Input<2>, Dropout<0.1>, Named<"a", Linear<3>>, ReLU, Dropout<0.5>, Named<"b", Linear<2>>> {};
    struct Fixed : Frozen<Plain, "a.*"> {};
    struct Ended : Sequential<Input<2>, Named<"a", Linear<3>>, ReLU, Named<"b", Linear<2>>, Sigmoid> {};
    const TemporaryFile file;
    const auto outputs = [&]<class Of>(const Predictor<Of>& predictor) {
        std::vector<float> values(2);
        predictor.predict(std::vector<float>{1, 2}, values);
        return values;
    };
    const auto write = [&]<class Of>(const Of&) {
        DataParallel<Of, CrossEntropy<2>, Sgd, ConcatMean, Host> training({.batch_size = 1, .seed = 2});
        write_checkpoint(file.path, Of::layers, {.state = training.state()});
    };
    const std::string begin =
        file.path + " is a checkpoint of another network: layer[2] was ReLU: 3 and is Sigmoid: 3; ";
    write(Plain{});
    const std::vector<float> expected = outputs(Predictor<Plain>(file.path));
    CHECK(message_of<DataError>([&] { (void)Predictor<Squashed>(file.path); }).starts_with(begin));
    const Checkpoint read = read_checkpoint(file.path, Plain::layers);
    CHECK(message_of<DataError>([&] { (void)Predictor<Squashed>(read, file.path); }).starts_with(begin));
    CHECK(outputs(Predictor<Dropped>(file.path)) == expected);
    CHECK(outputs(Predictor<Fixed>(file.path)) == expected);
    write(Dropped{});
    CHECK(outputs(Predictor<Plain>(file.path)) == expected);
    CHECK(message_of<DataError>([&] { (void)Predictor<Squashed>(file.path); }).starts_with(begin));
    CHECK(contains(message_of<DataError>([&] { (void)Predictor<Ended>(file.path); }),
                   "layer[4] was none and is Sigmoid: 2; NetworkInFile::of_same_parameters"));
    const std::vector<float> squashed =
        outputs(Predictor<Ended>(file.path, {.network = NetworkInFile::of_same_parameters}));
    CHECK(squashed[0] == doctest::Approx(1 / (1 + std::exp(-expected[0]))));
}

TEST_CASE("a file of PyTorch whose names have a beginning, or that has more tensors, is used by options") {
    struct Small : Sequential<Input<2>, Named<"fc", Linear<1>>> {};
    const TemporaryFile file;
    const float values[] = {2, 3, 4, 5};
    const std::vector<TensorHeader> tensors{
        {"module.fc.weight", "F32", {1, 2}}, {"module.fc.bias", "F32", {1}}, {"n_averaged", "F32", {}}};
    SafetensorsWriter writer(file.path, tensors, {});
    writer.write(std::as_bytes(std::span(values)));
    writer.commit();
    const std::string other = file.path + " is a checkpoint of another network: it has ";
    CHECK(message_of<DataError>([&] { (void)Predictor<Small>(file.path); }) ==
          other + "no tensor fc.weight; its names begin with module., and .file_prefix = \"module.\" leaves that out");
    CHECK(message_of<DataError>([&] { (void)Predictor<Small>(file.path, {.file_prefix = "module."}); }) ==
          other + "a tensor n_averaged, which this network does not have; .ignored = {\"n_averaged\"} leaves it out");
    const Predictor<Small> predictor(file.path, {.file_prefix = "module.", .ignored = {"n_averaged"}});
    std::vector<float> output(1);
    predictor.predict(std::vector<float>{1, 10}, output);
    CHECK(output[0] == 36);
}
