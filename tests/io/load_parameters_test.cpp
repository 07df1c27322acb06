// SPDX-License-Identifier: Apache-2.0
//
// Loading a part of a network by patterns: what is loaded, what is reported, and what is rejected.
#include <cupola/io/load_parameters.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/net/frozen.hpp>

#include "file_support.hpp"
#include "throws_with.hpp"

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
    CHECK_FALSE(report.complete());
    CHECK(to_string(f.load({.patterns = {"*.fc.*", "head.weight"}})) ==
          "loaded 2: body.fc.weight, body.fc.bias\n"
          "of other extents 1: head.weight is 3 x 6 here and 5 x 6 in the file\n"
          "matched by no pattern 7: body.conv.weight, body.conv.bias, body.norm.weight, body.norm.bias, head.bias, "
          "body.norm.running_mean, body.norm.running_var\n"
          "in the file and not used 8: body.conv.bias, body.conv.weight, body.norm.bias, body.norm.running_mean, "
          "body.norm.running_var, body.norm.weight, head.bias, head.weight");
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
          "body.fc.weight, body.fc.bias, head.weight, head.bias, body.norm.running_mean, body.norm.running_var");
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
    CHECK(message_of<DataError>([&] {
              f.load({});
          }).ends_with("head.bias, body.norm.running_mean, body.norm.running_var" + hint));
    CHECK(message_of<DataError>([&] { f.load({.patterns = {"body.fc.bias"}}); }) ==
          "nothing could be loaded from " + f.path + ": not in the file: body.fc.bias" + hint);
    CHECK(f.load({.patterns = {"body.fc.bias"}, .file_prefix = "module."}).loaded == Names{"body.fc.bias"});
    CHECK(message_of<DataError>([&] { f.load({.file_prefix = "module.", .require_all = true}); }).find("begin with") ==
          std::string::npos);
}
