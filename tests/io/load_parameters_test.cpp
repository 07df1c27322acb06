// SPDX-License-Identifier: Apache-2.0
//
// Loading a part of a network by patterns: what is loaded, what is reported, and what is rejected.
// Covers: cupola/io/load_report.hpp
#include <cupola/io/load_parameters.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/predict.hpp>

#include "file_support.hpp"
#include "throws_with.hpp"
#include "torch_support.hpp"

namespace {

template <std::int64_t classes>
struct NetOf : Sequential<Input<4, 4, 2>, Named<"body.conv", Conv2d<3, 3>>, Named<"body.norm", BatchNorm2d<>>, ReLU,
                          Flatten, Named<"body.fc", Linear<6>>, ReLU, Named<"head", Linear<classes>>> {};
struct Pretrained : NetOf<5> {};
struct Other : NetOf<3> {};
struct OtherFrozen : Frozen<Other, "body.*"> {};

/// Values that differ everywhere, from `first` on.
template <class N>
TrainingState state_of(float first) {
    TrainingState state{.step = 7, .tensors = state_tensors(N::layers)};
    state.parameters.resize(static_cast<std::size_t>(N::parameter_elements));
    state.averages.resize(static_cast<std::size_t>(N::trained_elements));
    state.buffers.resize(static_cast<std::size_t>(N::buffer_elements));
    for (auto* const arena : {&state.parameters, &state.averages, &state.buffers}) {
        for (float& value : *arena) value = first++;
    }
    return state;
}

/// A parameter of a layer by the number of the layer.
template <class N>
std::vector<float> part(const std::vector<float>& arena, std::size_t layer, std::size_t p) {
    const auto begin = arena.begin() + N::layers[layer].offsets[p];
    return {begin, begin + N::layers[layer].parameters.list[p].shape.size()};
}

/// The running statistics, without the padding between them.
std::vector<float> statistics(const std::vector<float>& buffers) {
    std::vector<float> values;
    for (const RunningStatistics& norm : running_statistics(Other::layers)) {
        for (const std::int64_t offset : {norm.mean, norm.variance})
            values.insert(values.end(), buffers.begin() + offset, buffers.begin() + offset + norm.channels);
    }
    return values;
}

/// The state of a training with other parameters.
template <class Training>
TrainingState state_of_training(Training& training, const std::vector<float>& parameters) {
    TrainingState state = training.state();
    state.parameters = parameters;
    return state;
}

struct Fixture {
    io_tests::TemporaryFolder folder;
    std::string path = folder.path("pretrained.safetensors");
    TrainingState pretrained = state_of<Pretrained>(1000), state = state_of<Other>(1);
    Fixture() { write_checkpoint(path, Pretrained::layers, {.state = pretrained}); }
    LoadReport load(const LoadOptions& options) {
        return load_parameters(SafetensorsFile(path), Other::layers, state, options);
    }
};

using Names = std::vector<std::string>;

/// A file of a network's tensors that notes what is read of it.
class NotedFile : public TensorFile {
public:
    explicit NotedFile(std::span<const LayerInfo> layers) : TensorFile("noted") {
        // Reserved: the texts must not move.
        names_.reserve(100);
        for (const impl::StoredTensors all = impl::stored_tensors(layers);
             const auto* const part : {&all.parameters, &all.buffers}) {
            for (const impl::StoredTensor& each : *part) {
                std::string extents;
                for (std::size_t i = 0; i < each.shape.rank; ++i)
                    extents += text(extents.empty() ? "" : ",", each.shape[i]);
                names_.emplace_back(each.name, extents);
                tensors_.push_back({.name = names_.back().first, .type = "F32", .extents = names_.back().second});
            }
        }
        std::ranges::sort(tensors_, {}, &SafeTensor::name);
    }
    struct Read {
        std::string name;
        std::uint64_t first, count;
    };
    mutable std::vector<Read> reads;
    /// Elements by tensor and number; others are 1.
    std::map<std::pair<std::string, std::uint64_t>, float> values;
    /// From this number of reads on the file cannot be read.
    std::size_t broken = ~std::size_t{0};

private:
    void read_some(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const override {
        if (reads.size() >= broken) throw DataError("noted is truncated");
        const std::string name(tensor.name);
        reads.push_back({name, first, to.size()});
        for (std::size_t i = 0; i < to.size(); ++i) {
            const auto found = values.find({name, first + i});
            to[i] = found == values.end() ? 1 : found->second;
        }
    }
    std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace

TEST_CASE("what a pattern matches is loaded in the network's layout, and the report names all the rest") {
    Fixture f;
    const TrainingState before = f.state;
    const LoadReport report = f.load({.patterns = {"body.*"}});
    CHECK(report.loaded == Names{"body.conv.weight", "body.conv.bias", "body.norm.weight", "body.norm.bias",
                                 "body.fc.weight", "body.fc.bias", "body.norm.running_mean", "body.norm.running_var"});
    CHECK(report.not_matched == Names{"head.weight", "head.bias"});
    CHECK(report.unused == Names{"head.bias", "head.weight"});
    CHECK(report.complete());
    for (const std::size_t layer : {0U, 1U, 4U}) {
        for (const std::size_t p : {0U, 1U}) {
            const auto wanted = part<Pretrained>(f.pretrained.parameters, layer, p);
            CHECK(part<Other>(f.state.parameters, layer, p) == wanted);
            // The moving averages begin with the loaded values.
            CHECK(part<Other>(f.state.averages, layer, p) == wanted);
        }
    }
    CHECK(part<Other>(f.state.parameters, 6, 0) == part<Other>(before.parameters, 6, 0));
    CHECK(part<Other>(f.state.averages, 6, 1) == part<Other>(before.averages, 6, 1));
    CHECK(statistics(f.state.buffers) == statistics(f.pretrained.buffers));
    CHECK(f.state.step == 7);
}

TEST_CASE("without patterns everything is loaded that has the file's extents, and the report says what has not") {
    Fixture f;
    const LoadReport report = f.load({});
    CHECK(report.loaded.size() == 8);
    CHECK(report.other_extents ==
          Names{"head.weight is 3 x 6 here and 5 x 6 in the file", "head.bias is 3 here and 5 in the file"});
    CHECK(report.unused.empty());
    CHECK_FALSE(report.complete());
    CHECK(to_string(f.load({.patterns = {"*.fc.*", "head.weight"}})) ==
          "loaded 2: body.fc.weight, body.fc.bias\n"
          "of other extents 1: head.weight is 3 x 6 here and 5 x 6 in the file\n"
          "matched by no pattern 7: body.conv.weight, body.conv.bias, body.norm.weight, body.norm.bias, head.bias, "
          "body.norm.running_mean, body.norm.running_var\n"
          "in the file and not used 7: body.conv.bias, body.conv.weight, body.norm.bias, body.norm.running_mean, "
          "body.norm.running_var, body.norm.weight, head.bias");
}

TEST_CASE("moving averages are loaded where they are asked for") {
    Fixture f;
    const LoadReport report = f.load({.patterns = {"body.fc.weight"}, .weights = Weights::averages});
    CHECK(report.loaded.size() == 1);
    CHECK(part<Other>(f.state.parameters, 4, 0) == part<Pretrained>(f.pretrained.averages, 4, 0));
    f.pretrained.averages.clear();
    write_checkpoint(f.path, Pretrained::layers, {.state = f.pretrained});
    CHECK(message_of<DataError>([&] { f.load({.weights = Weights::averages}); }) == f.path + " has no moving averages");
}

TEST_CASE("names may have a prefix in the file, and a tensor that the file lacks is reported") {
    struct Wrapped : Sequential<Input<4, 4, 2>, Flatten, Named<"net.body.fc", Linear<6>>> {};
    struct Own : Sequential<Input<4, 4, 2>, Flatten, Named<"body.fc", Linear<6>>, Named<"head", Linear<2>>> {};
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("wrapped.safetensors");
    const TrainingState stored = state_of<Wrapped>(1);
    write_checkpoint(path, Wrapped::layers, {.state = stored});
    TrainingState state = state_of<Own>(500);
    const LoadReport report = load_parameters(SafetensorsFile(path), Own::layers, state, {.file_prefix = "net."});
    CHECK(report.loaded == Names{"body.fc.weight", "body.fc.bias"});
    CHECK(report.missing == Names{"head.weight", "head.bias"});
    CHECK(report.unused.empty());
    CHECK(part<Own>(state.parameters, 1, 0) == part<Wrapped>(stored.parameters, 1, 0));
    CHECK(to_string(report) ==
          "loaded 2, each as net. and its name: body.fc.weight, body.fc.bias\n"
          "not in the file 2, each as net. and its name: head.weight, head.bias");
    const auto refusal = [&](const LoadOptions& options) {
        return message_of<DataError>([&] { load_parameters(SafetensorsFile(path), Own::layers, state, options); });
    };
    CHECK(refusal({.file_prefix = "net.", .require_all = true}) ==
          path + " lacks a part of what was to be loaded: not in the file: net.head.weight, net.head.bias");
    CHECK(refusal({.patterns = {"head.bias"}, .file_prefix = "net."}) ==
          "nothing could be loaded from " + path + ": not in the file: net.head.bias");
    struct Wider : Sequential<Input<4, 4, 2>, Flatten, Named<"body.fc", Linear<7>>> {};
    TrainingState wider = state_of<Wider>(500);
    CHECK(message_of<DataError>([&] {
              load_parameters(SafetensorsFile(path), Wider::layers, wider,
                              {.patterns = {"*.bias"}, .file_prefix = "net."});
          }) ==
          "nothing could be loaded from " + path + ": body.fc.bias is 7 here, and net.body.fc.bias is 6 in the file");
}

TEST_CASE(
    "a pattern that matches nothing, nothing to load, an incomplete load and a NaN are errors that change nothing") {
    Fixture f;
    const TrainingState before = f.state;
    CHECK(message_of<InvalidArgument>([&] {
              f.load({.patterns = {"body.*", "body/*"}});
          }) ==
          "the pattern 'body/*' matches none of body.conv.weight, body.conv.bias, body.norm.weight, body.norm.bias, "
          "body.fc.weight, body.fc.bias, head.weight, head.bias and 2 more");
    CHECK(message_of<InvalidArgument>([&] { f.load({.patterns = {}}); }) ==
          "load_parameters needs at least one pattern");
    CHECK(message_of<DataError>([&] { f.load({.patterns = {"head.*"}, .file_prefix = "net."}); }) ==
          "nothing could be loaded from " + f.path +
              ": no name in it begins with net.; it has 18 tensors, the first is body.conv.bias");
    CHECK(message_of<DataError>([&] { f.load({.patterns = {"head.bias"}}); }) ==
          "nothing could be loaded from " + f.path + ": head.bias is 3 here and 5 in the file");
    CHECK(message_of<DataError>([&] { f.load({.require_all = true}); }) ==
          f.path +
              " lacks a part of what was to be loaded: head.weight is 3 x 6 here and 5 x 6 in the file; head.bias is 3 "
              "here and 5 in the file");
    // A file that PyTorch could have written: one tensor, of a NaN.
    const float values[] = {std::numeric_limits<float>::quiet_NaN(), 1, 2, 3, 4, 5};
    SafetensorsWriter file(f.path, std::vector<TensorHeader>{{"body.fc.bias", "F32", {6}}}, {});
    file.write(std::as_bytes(std::span(values)));
    file.commit();
    CHECK(message_of<DataError>([&] { f.load({}); }) ==
          f.path + " cannot be used: its parameter body.fc.bias is nan at [0]");
    CHECK(f.state.parameters == before.parameters);
    CHECK(f.state.buffers == before.buffers);
}

TEST_CASE("a file without tensors is an error that says so, of every kind and for every reader") {
    Fixture f;
    const std::string zip = f.folder.path("x.pth");
    io_tests::write_bytes(f.path, io_tests::safetensors("{}"));
    io_tests::write_bytes(zip, io_tests::torch_zip(io_tests::pickle::dictionary({}), {}));
    for (const std::string& path : {f.path, zip}) {
        const std::string message = "nothing could be loaded from " + path + ": it has no tensors";
        CHECK(message_of<DataError>([&] { load_parameters(*open_tensor_file(path), Other::layers, f.state); }) ==
              message);
        CHECK(message_of<DataError>([&] {
                  load_parameters(*open_tensor_file(path), Other::layers, f.state,
                                  {.file_prefix = "net.", .weights = Weights::averages});
              }) == message);
        CHECK(message_of<DataError>([&] { (void)read_checkpoint(path, Other::layers); }) == message);
        CHECK(message_of<DataError>([&] { const Predictor<Other> predictor(path); }) == message);
    }
    // Nothing is missing for a network that has none.
    struct NoParameters : Sequential<Input<4, 4, 2>, Flatten> {};
    CHECK_NOTHROW((void)read_checkpoint(zip, NoParameters::layers));
}

TEST_CASE("of many misshapen and missing tensors the first are listed") {
    struct Deep : Sequential<Input<6>, Linear<6>, Linear<6>, Linear<6>, Linear<6>, Linear<6>> {};
    struct Wide : Sequential<Input<7>, Linear<7>, Linear<7>, Linear<7>, Linear<7>, Linear<7>, Linear<6>, Linear<6>,
                             Linear<6>, Linear<6>, Linear<6>> {};
    Fixture f;
    write_checkpoint(f.path, Deep::layers, {.state = state_of<Deep>(1)});
    TrainingState state = state_of<Wide>(1);
    CHECK(message_of<DataError>([&] { load_parameters(SafetensorsFile(f.path), Wide::layers, state); }) ==
          "nothing could be loaded from " + f.path +
              ": 0.weight is 7 x 7 here and 6 x 6 in the file; 0.bias is 7 here and 6 in the file; "
              "1.weight is 7 x 7 here and 6 x 6 in the file; 1.bias is 7 here and 6 in the file; "
              "2.weight is 7 x 7 here and 6 x 6 in the file; 2.bias is 7 here and 6 in the file; "
              "3.weight is 7 x 7 here and 6 x 6 in the file; 3.bias is 7 here and 6 in the file and 2 more; "
              "not in the file: 5.weight, 5.bias, 6.weight, 6.bias, 7.weight, 7.bias, 8.weight, 8.bias and 2 more");
}

TEST_CASE("all numbers are checked before the first is copied, in pieces of a bounded size") {
    NotedFile file(Other::layers);
    TrainingState state = state_of<Other>(1);
    constexpr std::size_t most = 7;
    const LoadReport report = impl::load_into(impl::TensorPieces(file, most), Other::layers, state, {});
    CHECK(report.loaded.size() == 10);
    const std::size_t half = file.reads.size() / 2;
    REQUIRE(file.reads.size() == 2 * half);
    std::uint64_t elements = 0;
    for (std::size_t i = 0; i < half; ++i) {
        const NotedFile::Read &checked = file.reads[i], &copied = file.reads[half + i];
        CHECK(checked.count <= most);
        CHECK(checked.name == copied.name);
        CHECK(checked.first == copied.first);
        CHECK(checked.count == copied.count);
        elements += checked.count;
    }
    CHECK(elements == std::uint64_t{Other::parameter_count} + 6);
    CHECK(std::ranges::all_of(part<Other>(state.parameters, 4, 0), [](float value) { return value == 1; }));
    // Nothing is copied of a file whose last number is none.
    const TrainingState before = state = state_of<Other>(1);
    const auto refusal = [&](const std::string& name, std::uint64_t place, float value) {
        file.reads.clear();
        file.values = {{{name, place}, value}};
        std::string message = message_of<DataError>(
            [&] { (void)impl::load_into(impl::TensorPieces(file, most), Other::layers, state, {}); });
        CHECK(state.parameters == before.parameters);
        CHECK(state.averages == before.averages);
        CHECK(state.buffers == before.buffers);
        CHECK(file.reads.size() <= half);
        return message;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(refusal("body.norm.running_var", 2, -1) ==
          "noted cannot be used: its running statistic body.norm.running_var is -1 at [2]");
    CHECK(refusal("body.norm.running_mean", 2, nan) ==
          "noted cannot be used: its running statistic body.norm.running_mean is nan at [2]");
    CHECK(refusal("head.bias", 2, nan) == "noted cannot be used: its parameter head.bias is nan at [2]");
    // The last output, input channel 1, row 2, column 0 of the file is output, row, column, channel here.
    CHECK(refusal("body.conv.weight", 2 * 18 + 9 + 6, nan) ==
          "noted cannot be used: its parameter body.conv.weight is nan at [2, 2, 0, 1]");
    // An error while it is copied changes nothing either of what the caller has.
    file.values.clear();
    file.reads.clear();
    file.broken = file.tensors().size() + 1;
    CHECK(message_of<DataError>([&] { (void)load_parameters(file, Other::layers, state); }) == "noted is truncated");
    CHECK(state.parameters == before.parameters);
}

TEST_CASE("a tensor in pieces of any size lands where the whole does") {
    Fixture f;
    const TrainingState before = f.state;
    const SafetensorsFile file(f.path);
    f.load({.patterns = {"body.*"}});
    for (const std::size_t most : {1U, 2U, 5U, 17U, 64U}) {
        TrainingState state = before;
        (void)impl::load_into(impl::TensorPieces(file, most), Other::layers, state, {.patterns = {"body.*"}});
        CHECK(state.parameters == f.state.parameters);
        CHECK(state.averages == f.state.averages);
        CHECK(state.buffers == f.state.buffers);
    }
}

TEST_CASE("a file whose last tensor is of another shape or not finite leaves a training as it was") {
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("x");
    using T = DataParallel<Pretrained, CrossEntropy<5>, Sgd, ConcatMean, Host>;
    T training({.replicas = 2, .devices = 2, .batch_size = 4});
    const std::vector<float> before = training.parameters();
    // In the order of the file, too, the head is the last.
    TrainingState of_other = state_of<Other>(1);
    of_other.averages.clear();
    write_checkpoint(path, Other::layers, {.state = of_other});
    CHECK(message_of<DataError>([&] { (void)load_parameters(training, path, {.require_all = true}); }) ==
          path +
              " lacks a part of what was to be loaded: head.weight is 5 x 6 here and 3 x 6 in the file; head.bias is 5 "
              "here and 3 in the file");
    CHECK(training.parameters() == before);
    std::string bytes;
    {
        TrainingState state = state_of<Pretrained>(1);
        state.averages.clear();
        write_checkpoint(path, Pretrained::layers, {.state = state});
        const SafetensorsFile file(path);
        std::string header;
        std::string data;
        for (const char* const name :
             {"body.conv.weight", "body.conv.bias", "body.fc.weight", "body.fc.bias", "head.weight", "head.bias"}) {
            const SafeTensor& tensor = *file.find(name);
            const auto stored = file.bytes(tensor);
            header += text(header.empty() ? "" : ",", '"', name, R"(":{"dtype":"F32","shape":[)", tensor.extents,
                           R"(],"data_offsets":[)", data.size(), ",", data.size() + stored.size(), "]}");
            data.append(reinterpret_cast<const char*>(stored.data()), stored.size());
        }
        bytes = io_tests::safetensors("{" + header + "}", data);
    }
    io_tests::write_bytes(path, bytes);
    CHECK(load_parameters(training, path).loaded.size() == 6);
    const std::vector<float> loaded = training.parameters();
    CHECK(loaded != before);
    training.restore(state_of_training(training, before));
    bytes[bytes.size() - 1] = '\x7F';  // the last float
    bytes[bytes.size() - 2] = '\x80';
    io_tests::write_bytes(path, bytes);
    CHECK(contains(message_of<DataError>([&] { (void)load_parameters(training, path); }),
                   " cannot be used: its parameter head.bias is "));
    CHECK(training.parameters() == before);
}

TEST_CASE("a training goes on from what is loaded, on every replica, with its own step and without a changed head") {
    Fixture f;
    using T = DataParallel<OtherFrozen, CrossEntropy<3>, Sgd, ConcatMean, Host>;
    T training({.replicas = 2, .devices = 2, .batch_size = 4, .optimizer = {.momentum = 0.9}});
    const std::vector<float> before = training.parameters();
    const LoadReport report = load_parameters(training, f.path, {.patterns = {"body.*"}});
    CHECK(report.loaded.size() == 8);
    for (const int device : {0, 1}) {
        const std::vector<float> after = training.parameters(device);
        CHECK(part<OtherFrozen>(after, 4, 0) == part<Pretrained>(f.pretrained.parameters, 4, 0));
        CHECK(part<OtherFrozen>(after, 6, 0) == part<OtherFrozen>(before, 6, 0));
    }
    CHECK(statistics(training.state().buffers) == statistics(f.pretrained.buffers));
    CHECK(training.step() == 0);
    CHECK(message_of<UnreadableFile>([&] { (void)load_parameters(training, f.path + ".none"); }).starts_with(f.path));
}

TEST_CASE("names with a beginning that PyTorch's wrappers put there are named with the option that leaves it out") {
    Fixture f;
    const std::vector<float> bias(6, 1.0F);
    SafetensorsWriter file(f.path, std::vector<TensorHeader>{{"module.body.fc.bias", "F32", {6}}}, {});
    file.write(std::as_bytes(std::span(bias)));
    file.commit();
    const std::string hint = "; its names begin with module., and .file_prefix = \"module.\" leaves that out";
    CHECK(message_of<DataError>([&] { f.load({}); })
              .ends_with("not in the file: body.conv.weight, body.conv.bias, body.norm.weight, body.norm.bias, "
                         "body.fc.weight, body.fc.bias, head.weight, head.bias and 2 more" +
                         hint));
    CHECK(message_of<DataError>([&] { f.load({.patterns = {"body.fc.bias"}}); }) ==
          "nothing could be loaded from " + f.path + ": not in the file: body.fc.bias" + hint);
    CHECK(f.load({.patterns = {"body.fc.bias"}, .file_prefix = "module."}).loaded == Names{"body.fc.bias"});
    CHECK(message_of<DataError>([&] { f.load({.file_prefix = "module.", .require_all = true}); }).find("begin with") ==
          std::string::npos);
}
