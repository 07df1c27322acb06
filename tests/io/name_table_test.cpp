// SPDX-License-Identifier: Apache-2.0
//
// Files of other toolkits: names and layouts by a table, read and written, and the errors of tables that do not fit.
// Covers: cupola/net/name_table.hpp
#include <cupola/io/load_parameters.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <cupola/io/torch_file.hpp>
#include <cupola/io/torch_writer.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/predict.hpp>

#include "file_support.hpp"
#include "throws_with.hpp"

namespace {

struct TableNet
    : Sequential<Input<1, 2, 3>, Named<"conv", Conv2d<2, 1, no_bias>>, Named<"norm", BatchNorm2d<>>, Flatten,
                 Named<"blocks.0.qkv", Linear<6>>, Named<"blocks.1.qkv", Linear<6>>, Named<"head", Linear<2>>> {};
using TableNames = std::vector<std::string>;
using TableFloats = std::vector<float>;

/// Values first, first + 1, ... in the whole arena of parameters, and others in that of buffers.
TrainingState state_of_table_net(float first) {
    TrainingState state;
    state.parameters.resize(static_cast<std::size_t>(TableNet::parameter_elements));
    state.buffers.resize(static_cast<std::size_t>(TableNet::buffer_elements));
    std::iota(state.parameters.begin(), state.parameters.end(), first);
    std::iota(state.buffers.begin(), state.buffers.end(), 1000 + first);
    return state;
}

/// The parameters and running statistics, without the gaps between them.
TableFloats table_net_values(const TrainingState& state) {
    TableFloats values;
    const impl::StoredTensors tensors = impl::stored_tensors(TableNet::layers);
    for (const bool buffers : {false, true}) {
        const TableFloats& arena = buffers ? state.buffers : state.parameters;
        for (const impl::StoredTensor& each : buffers ? tensors.buffers : tensors.parameters)
            values.insert(values.end(), arena.begin() + each.offset,
                          arena.begin() + each.offset + static_cast<std::ptrdiff_t>(each.size()));
    }
    return values;
}

/// Writes a safetensors file of these tensors; their elements are 0, 1, ... each.
void write_counted(const std::string& path,
                   const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors) {
    std::vector<TensorHeader> headers;
    for (const auto& [name, shape] : tensors) headers.push_back({name, "F32", shape});
    SafetensorsWriter file(path, headers, {});
    for (const TensorHeader& header : headers) {
        std::size_t size = 1;
        for (const std::int64_t extent : header.shape) size *= static_cast<std::size_t>(extent);
        TableFloats values(size);
        std::iota(values.begin(), values.end(), 0.0F);
        file.write(std::as_bytes(std::span(values)));
    }
    file.commit();
}

/// A state written and read back by a table, also in small pieces.
struct BothWays {
    io_tests::TemporaryFolder folder;
    std::string path = folder.path("x.pth");
    TrainingState state = state_of_table_net(1);

    explicit BothWays(const NameTable& names) {
        write_torch_file(path, TableNet::layers, state, names);
        const TorchFile file(path);
        for (const std::size_t most : {std::size_t{1}, std::size_t{5}, std::size_t{1000}}) {
            TrainingState read = state_of_table_net(9000);
            const LoadReport report = impl::load_into(impl::TensorPieces(file, most), TableNet::layers, read,
                                                      {.require_all = true, .names = names});
            CHECK(report.loaded.size() == 11);
            CHECK(report.unused.empty());
            CHECK(table_net_values(read) == table_net_values(state));
        }
        const Checkpoint read = read_checkpoint(path, TableNet::layers, {.names = names});
        CHECK(table_net_values(read.state) == table_net_values(state));
        CHECK_FALSE(read.resumable);
    }
    [[nodiscard]] std::string extents(std::string_view name) const {
        const TorchFile file(path);
        const SafeTensor* const tensor = file.find(name);
        return tensor == nullptr ? "none" : std::string(tensor->extents);
    }
    [[nodiscard]] TableFloats values(std::string_view name) const {
        const TorchFile file(path);
        TableFloats result(file.find(name)->elements());
        file.read_floats(*file.find(name), result.data());
        return result;
    }
    /// An element of a parameter of a layer here.
    [[nodiscard]] float here(std::size_t layer, std::size_t element) const {
        return state.parameters[static_cast<std::size_t>(TableNet::layers[layer].offsets[0]) + element];
    }
};

}  // namespace

TEST_CASE("names of another toolkit are read and written; what no entry matches keeps its name") {
    const BothWays file({{.file = {"h.*.attn.*"}, .here = "blocks.*.qkv.*"},
                         {.file = {"bn.mean"}, .here = "norm.running_mean"},
                         {.file = {"stem.bn.*"}, .here = "norm.*"}});
    CHECK(file.extents("h.1.attn.weight") == "6,6");
    CHECK(file.extents("bn.mean") == "2");
    CHECK(file.extents("stem.bn.running_var") == "2");
    CHECK(file.extents("stem.bn.bias") == "2");
    CHECK(file.extents("head.weight") == "2,6");
    CHECK(file.extents("blocks.1.qkv.weight") == "none");
}

TEST_CASE("a transposed tensor is read and written as it lies in the file") {
    const BothWays file({{.file = {"c_*.w"}, .here = "blocks.*.qkv.weight", .axes = {1, 0}},
                         {.file = {"kernel"}, .here = "conv.weight", .axes = {3, 2, 0, 1}}});
    const TableFloats columns = file.values("c_1.w");
    for (std::size_t row = 0; row < 6; ++row) {
        for (std::size_t column = 0; column < 6; ++column)
            CHECK(columns[column * 6 + row] == file.here(4, row * 6 + column));
    }
    // Height, width, input, output: [out, 1, 1, in] here.
    CHECK(file.extents("kernel") == "1,1,3,2");
    for (std::size_t in = 0; in < 3; ++in) {
        for (std::size_t out = 0; out < 2; ++out)
            CHECK(file.values("kernel")[in * 2 + out] == file.here(0, out * 3 + in));
    }
}

TEST_CASE("a tensor of other extents is read and written, with its columns in the order of files") {
    // The first linear layer behind 1 x 2 x 2 is a convolution in the file.
    const BothWays file({{.file = {"fc1"}, .here = "blocks.0.qkv.weight", .extents = {0, 2, 1, -1}},
                         {.file = {"fc2"}, .here = "head.weight", .axes = {2, 0, 1}, .extents = {2, 3, 2}}});
    CHECK(file.extents("fc1") == "6,2,1,2");
    const TableFloats values = file.values("fc1");
    for (std::size_t out = 0; out < 6; ++out) {
        for (std::size_t channel = 0; channel < 2; ++channel) {
            for (std::size_t width = 0; width < 2; ++width)
                CHECK(values[out * 4 + channel * 2 + width] == file.here(3, out * 4 + width * 2 + channel));
        }
    }
    CHECK(file.extents("fc2") == "3,2,2");
}

TEST_CASE("several tensors are the rows of one parameter") {
    const BothWays equal({{.file = {"*.q.*", "*.k.*", "*.v.*"}, .here = "*.qkv.*"}});
    CHECK(equal.extents("blocks.1.k.weight") == "2,6");
    CHECK(equal.extents("blocks.1.v.bias") == "2");
    CHECK(equal.values("blocks.1.k.weight")[7] == equal.here(4, 3 * 6 + 1));
    // Each is transposed, and they have different numbers of rows.
    const BothWays others({{.file = {"*.q.w", "*.kv.w"}, .here = "*.qkv.weight", .axes = {1, 0}, .rows = {4, 2}}});
    CHECK(others.extents("blocks.1.q.w") == "6,4");
    CHECK(others.extents("blocks.1.kv.w") == "6,2");
    CHECK(others.values("blocks.1.kv.w")[2 * 3 + 1] == others.here(4, 5 * 6 + 3));
}

TEST_CASE("the first entry that matches counts, and a table is extended by a shorter one before it") {
    const NameTable table{{.file = {"fc.*"}, .here = "head.*"}, {.file = {"h.*"}, .here = "blocks.*"}};
    const BothWays own(NameTable{{.file = {"first"}, .here = "head.bias"}} + table);
    CHECK(own.extents("first") == "2");
    CHECK(own.extents("fc.weight") == "2,6");
    // The entry of which nothing is left is not looked for in the file.
    const BothWays all(NameTable{{.file = {"last.*"}, .here = "hea*"}} + table);
    CHECK(all.extents("last.d.weight") == "2,6");
}

TEST_CASE(
    "what is ignored is not reported, a wrapper's prefix stands before the names of a table, and patterns choose") {
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("x");
    write_counted(path,
                  {{"net.fc.w", {2, 6}}, {"net.fc.b", {2}}, {"net.pos.ids", {4}}, {"net.other", {1}}, {"ids", {3}}});
    const NameTable names{{.file = {"fc.w"}, .here = "head.weight"},
                          {.file = {"fc.b"}, .here = "head.bias"},
                          {.file = {"*ids", "none"}},
                          {.file = {"stem.w"}, .here = "conv.weight"}};
    TrainingState state = state_of_table_net(100);
    const LoadReport report = load_parameters(SafetensorsFile(path), TableNet::layers, state,
                                              {.patterns = {"head.*"}, .file_prefix = "net.", .names = names});
    CHECK(report.loaded == TableNames{"head.weight", "head.bias"});
    CHECK(report.unused == TableNames{"net.other"});
    const auto begin = state.parameters.begin() + TableNet::layers[5].offsets[0];
    CHECK(TableFloats(begin, begin + 3) == TableFloats{0, 1, 2});
    // Without the option: the prefix is in the message of what is missing.
    CHECK(message_of<DataError>([&] {
              load_parameters(
                  SafetensorsFile(path), TableNet::layers, state,
                  {.patterns = {"head.bias", "norm.bias"}, .file_prefix = "net.", .require_all = true, .names = names});
          }) == path + " lacks a part of what was to be loaded: not in the file: net.norm.bias");
}

TEST_CASE("a checkpoint and a Predictor are read by a table as load_parameters reads") {
    const NameTable names{{.file = {"h.*.attn.*"}, .here = "blocks.*.qkv.*"},
                          {.file = {"conv_head"}, .here = "head.weight", .extents = {0, -1, 1, 1}},
                          {.file = {"*.ids"}}};
    const BothWays file(names);
    const Predictor<TableNet> wanted(Checkpoint{.state = file.state}, "x"), found(file.path, {.names = names});
    const TableFloats sample{1, 2, 3, 4, 5, 6};
    TableFloats outputs(2), outputs_by_table(2);
    wanted.predict(sample, outputs);
    found.predict(sample, outputs_by_table);
    CHECK(outputs_by_table == outputs);
    const auto refusal = [&](const NameTable& table) {
        return message_of<DataError>(
            [&] { (void)read_checkpoint(file.path, TableNet::layers, ReadOptions{.names = table}); });
    };
    const std::string other = file.path + " is a checkpoint of another network: ";
    CHECK(refusal({}) == other + "it has no tensor blocks.0.qkv.weight");
    CHECK(refusal(NameTable{{.file = {"none"}, .here = "head.bias"}} + names) ==
          file.path + " has no tensor none, which the entry none -> head.bias of the table of names is to read");
    CHECK(refusal(NameTable{{.file = {"conv_head"}, .here = "head.weight", .extents = {1, -1}}} + names) ==
          other + "its conv_head is [2,6,1,1], and this network's is 1 x 12");
    CHECK(message_of<InvalidArgument>([&] {
              const Predictor<TableNet> predictor(file.path, {.names = {{.file = {"a"}, .here = "b"}}});
          }).starts_with("no entry of the table of names, from a -> b on, gives one of conv.weight"));
    // A tensor that the network does not have, ignored by the table or not.
    struct Small : Sequential<Input<2>, Named<"head", Linear<1>>> {};
    const std::string path = file.folder.path("small");
    write_counted(path, {{"net.fc.weight", {1, 2}}, {"net.fc.bias", {1}}, {"net.pos.ids", {4}}});
    const NameTable renamed{{.file = {"fc.*"}, .here = "head.*"}};
    const auto read = [&](const NameTable& table) {
        return read_checkpoint(path, Small::layers, {.file_prefix = "net.", .names = table}).state.parameters;
    };
    CHECK(message_of<DataError>([&] { (void)read(renamed); }) ==
          path +
              " is a checkpoint of another network: it has a tensor net.pos.ids, which this network does not have; "
              ".ignored = {\"net.pos.ids\"} leaves it out");
    const TableFloats parameters = read(renamed + NameTable{{.file = {"*.ids"}}});
    CHECK(TableFloats(parameters.begin(), parameters.begin() + 2) == TableFloats{0, 1});
}

TEST_CASE("a training's checkpoint whose names have changed since is read as a whole by a table") {
    struct Before : Sequential<Input<3>, Named<"body", Linear<4>>, ReLU, Named<"tail", Linear<2>>> {};
    struct After : Sequential<Input<3>, Named<"body", Linear<4>>, ReLU, Named<"head", Linear<2>>> {};
    using Trained = DataParallel<Before, CrossEntropy<2>, Sgd, ConcatMean, Host>;
    Trained training({.batch_size = 1, .optimizer = {.momentum = 0.9}, .moving_average = {.decay = 0.5}});
    TrainingState state = training.state();
    for (auto* const arena : {&state.parameters, &state.averages, &state.optimizer.at(0).values})
        std::iota(arena->begin(), arena->end(), 1.0F);
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("x");
    write_checkpoint(path, Before::layers, {.state = state});
    CHECK(message_of<DataError>([&] { (void)read_checkpoint(path, After::layers); }) ==
          path + " is a checkpoint of another network: it has no tensor head.weight");
    const Checkpoint read = read_checkpoint(path, After::layers, {.names = {{.file = {"tail.*"}, .here = "head.*"}}});
    CHECK(read.resumable);
    CHECK(read.state.parameters.size() == state.parameters.size());
    CHECK(read.state.averages == read.state.parameters);
    CHECK(read.state.optimizer.at(0).values == read.state.parameters);
    CHECK(read.state.parameters.at(static_cast<std::size_t>(After::layers[2].offsets[0])) ==
          state.parameters.at(static_cast<std::size_t>(Before::layers[2].offsets[0])));
}

TEST_CASE("an entry that does not fit the file or the network is an error that changes nothing") {
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("x");
    write_counted(path, {{"fc.w", {2, 6}}, {"q.w", {2, 6}}, {"k.w", {2, 6}}, {"v.w", {3, 6}}, {"head.bias", {2}}});
    TrainingState state = state_of_table_net(100);
    const TrainingState before = state;
    const auto load = [&](const NameTable& names, bool all = false) {
        load_parameters(SafetensorsFile(path), TableNet::layers, state, {.require_all = all, .names = names});
    };
    const auto data_error = [&](const NameEntry& entry, const std::vector<std::string>& patterns) {
        return message_of<DataError>([&] {
            load_parameters(SafetensorsFile(path), TableNet::layers, state,
                            {.patterns = patterns, .require_all = true, .names = {entry}});
        });
    };
    const auto refusal = [&](const NameEntry& entry) { return message_of<InvalidArgument>([&] { load({entry}); }); };
    const std::string lacks = path + " lacks a part of what was to be loaded: ",
                      nothing = "nothing could be loaded from " + path + ": ";

    CHECK(message_of<DataError>([&] { load({{.file = {"none.*"}, .here = "head.*"}}); }) ==
          path + " has no tensor none.*, which the entry none.* -> head.* of the table of names is to read");
    CHECK(
        message_of<DataError>([&] {
            load({{.file = {"q.w", "none", "v.w"}, .here = "blocks.0.qkv.weight"}});
        }) ==
        path +
            " has no tensor none, which the entry q.w, none, v.w -> blocks.0.qkv.weight of the table of names is to read");
    // Also one that gives nothing here.
    CHECK(message_of<DataError>([&] {
              load({{.file = {"fc.w"}, .here = "head.weight"}, {.file = {"a"}, .here = "b"}});
          }) == path + " has no tensor a, which the entry a -> b of the table of names is to read");
    CHECK(refusal({.file = {"fc.*"}, .here = "tail.*"}) ==
          "no entry of the table of names, from fc.* -> tail.* on, gives one of conv.weight, norm.weight, norm.bias, "
          "blocks.0.qkv.weight, blocks.0.qkv.bias, blocks.1.qkv.weight, blocks.1.qkv.bias, head.weight and 3 more");
    CHECK(message_of<InvalidArgument>([&] {
              load({{.file = {"a"}, .here = "head.bias"}, {.file = {"b"}, .here = "head.bias"}});
          }) == "two entries of the table of names give head.bias: a -> head.bias and b -> head.bias");

    // Rows.
    CHECK(data_error({.file = {"q.w", "k.w", "v.w"}, .here = "blocks.0.qkv.weight"},
                     {"blocks.0.qkv.weight", "head.bias"}) ==
          lacks +
              "blocks.0.qkv.weight is 6 x 4 here, from q.w of 2 x 4, k.w of 2 x 4, v.w of 2 x 4, and the file has "
              "2 x 6, 2 x 6, 3 x 6; .rows of the entry states unequal parts");
    CHECK(data_error({.file = {"q.w", "k.w", "v.w"}, .here = "blocks.1.qkv.weight", .rows = {2, 2, 2}},
                     {"blocks.1.qkv.weight"}) ==
          nothing +
              "blocks.1.qkv.weight is 6 x 6 here, from q.w of 2 x 6, k.w of 2 x 6, v.w of 2 x 6, and the file has "
              "2 x 6, 2 x 6, 3 x 6");
    CHECK(refusal({.file = {"q.w", "k.w", "v.w"}, .here = "blocks.1.qkv.weight", .rows = {2, 2, 3}}) ==
          "the entry q.w, k.w, v.w -> blocks.1.qkv.weight of the table of names has 2 + 2 + 3 rows, and "
          "blocks.1.qkv.weight has 6");
    CHECK(
        refusal({.file = {"q.w", "k.w", "v.w"}, .here = "head.weight"}) ==
        "the entry q.w, k.w, v.w -> head.weight of the table of names divides the 2 rows of head.weight into 3 parts: "
        ".rows is to state them");
    // Axes and extents.
    CHECK(refusal({.file = {"fc.w"}, .here = "head.weight", .axes = {2, 0, 1}}) ==
          "the entry fc.w -> head.weight of the table of names has an order of 3 axes, and head.weight has 2: 2 x 6");
    CHECK(refusal({.file = {"fc.w"}, .here = "head.weight", .extents = {0, 4}}) ==
          "the entry fc.w -> head.weight of the table of names has the extents {0, 4}, which do not fit those of "
          "head.weight, 2 x 6");
    CHECK(contains(refusal({.file = {"fc.w"}, .here = "head.weight", .extents = {0, 0, 0}}),
                   "has the extents {0, 0, 0}"));
    CHECK(contains(refusal({.file = {"fc.w"}, .here = "head.weight", .extents = {5, -1}}), "has the extents {5, -1}"));
    CHECK(data_error({.file = {"fc.w"}, .here = "head.weight", .axes = {1, 0}}, {"head.weight"}) ==
          nothing + "head.weight is 2 x 6 here, from fc.w of 6 x 2, and the file has 2 x 6");
    CHECK(data_error({.file = {"v.w"}, .here = "head.weight"}, {"head.weight"}) ==
          nothing + "head.weight is 2 x 6 here, and v.w is 3 x 6 in the file");
    // A number that is none, at its place here.
    TableFloats values(12, 1.0F);
    values[5] = std::numeric_limits<float>::quiet_NaN();
    SafetensorsWriter file(path, std::vector<TensorHeader>{{"fc.w", "F32", {6, 2}}}, {});
    file.write(std::as_bytes(std::span(values)));
    file.commit();
    CHECK(data_error({.file = {"fc.w"}, .here = "head.weight", .axes = {1, 0}}, {"head.weight"}) ==
          path + " cannot be used: its parameter head.weight is nan at [1, 2]");
    CHECK(state.parameters == before.parameters);
    CHECK(state.buffers == before.buffers);
}

TEST_CASE("a file that would have a name twice is not written; one tensor may be read into two parameters") {
    const io_tests::TemporaryFolder folder;
    const std::string path = folder.path("x.pth");
    const NameTable names{{.file = {"shared"}, .here = "blocks.1.qkv.weight"},
                          {.file = {"shared"}, .here = "blocks.1.qkv.bias"}};
    CHECK(message_of<InvalidArgument>([&] {
              write_torch_file(path, TableNet::layers, state_of_table_net(1), names);
          }) == path + " is not written: blocks.1.qkv.bias and blocks.1.qkv.weight would both be shared");
    CHECK(folder.names().empty());
    write_counted(path, {{"b", {2}}});
    TrainingState state = state_of_table_net(100);
    const LoadReport report =
        load_parameters(SafetensorsFile(path), TableNet::layers, state,
                        {.names = {{.file = {"b"}, .here = "head.bias"}, {.file = {"b"}, .here = "norm.bias"}}});
    CHECK(report.loaded == TableNames{"norm.bias", "head.bias"});
}
