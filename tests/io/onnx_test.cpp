// SPDX-License-Identifier: Apache-2.0
//
// ONNX files, read back here; tests/interop runs them in ONNX Runtime.
#include <cupola/io/onnx.hpp>

#include "../test.hpp"

#include <cupola/io/torch_file.hpp>
#include <cupola/io/torch_writer.hpp>
#include <cupola/layers/adaptive_avg_pool2d.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten_channels_last.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/global_avg_pool1d.hpp>
#include <cupola/layers/reshape.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/named_values.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"
#include "onnx_reader.hpp"

using namespace io_tests;
using namespace cupola_tests;

namespace {

template <class N>
TrainingState state_of() {
    TrainingState state{.parameters = arena<N>(1)};
    state.buffers = initial_buffers(N::layers);
    return state;
}

template <class N>
OnnxModel written(const OnnxOptions& options = {}) {
    const TemporaryFolder folder;
    write_onnx<N>(folder.path("x.onnx"), state_of<N>(), options);
    CHECK(folder.names().size() == 1);
    return read_onnx(read_bytes(folder.path("x.onnx")));
}

template <class N>
std::string refusal(const TrainingState& state, const OnnxOptions& options = {}) {
    const TemporaryFolder folder;
    const std::string path = folder.path("x.onnx");
    std::string message = message_of<InvalidArgument>([&] { write_onnx<N>(path, state, options); });
    CHECK(folder.names().empty());
    if (message.starts_with(path)) message.replace(0, path.size(), "FILE");
    return message;
}

using Texts = std::vector<std::string>;

struct Small : Sequential<Input<4, 2, 2>, Named<"conv", Conv2d<3, 3, stride(2)>>, Named<"norm", BatchNorm2d<>>, ReLU,
                          Flatten, Dropout<0.5>, Named<"fc", Linear<5>>, Linear<2, no_bias>> {};
struct Photographs : Small {
    static constexpr ImagePreprocessing preprocessing{.fit = {5, 4, 4}, .source = "here"};
};

}  // namespace

TEST_CASE("a network with a preprocessing has its numbers among the metadata, unless they are given") {
    const auto metadata = written<Photographs>({.metadata = {{"a", "b"}, {"preprocessing.source", "mine"}}}).metadata;
    CHECK(metadata.size() == 8);
    CHECK(metadata.at("a") == "b");
    CHECK(metadata.at("preprocessing.source") == "mine");
    CHECK(metadata.at("preprocessing.shorter_side") == "5");
    CHECK(metadata.at("preprocessing.mean") == "0.485 0.456 0.406");
    CHECK(written<Small>().metadata.empty());
}

TEST_CASE("a network is a model of its layers, whose weights have PyTorch's names and layouts") {
    const OnnxModel model = written<Small>({.name = "small", .metadata = {{"classes", "cat,dog"}, {"note", ""}}});
    CHECK(model.ir_version == 8);
    CHECK(model.opset == 17);
    CHECK(model.producer == "cupola");
    CHECK(model.producer_version == text(CUPOLA_VERSION_MAJOR, '.', CUPOLA_VERSION_MINOR, '.', CUPOLA_VERSION_PATCH));
    CHECK(model.graph == "small");
    CHECK(model.metadata == std::map<std::string, std::string>{{"classes", "cat,dog"}, {"note", ""}});
    CHECK(model.inputs == Texts{"input: 1 [N, 2, 4, 2]"});
    CHECK(model.outputs == Texts{"output: 1 [N, 2]"});
    CHECK(model.nodes ==
          Texts{"Conv(input, conv.weight, conv.bias) kernel_shape=3,3 strides=2,2 pads=0,0,1,1 -> conv/Conv",
                "BatchNormalization(conv/Conv, norm.weight, norm.bias, norm.running_mean, norm.running_var) "
                "epsilon=1e-05 -> norm/BatchNormalization",
                "Relu(norm/BatchNormalization) -> 2/Relu", "Flatten(2/Relu) -> 3/Flatten",
                "Gemm(3/Flatten, fc.weight, fc.bias) transB=1 -> fc/Gemm",
                "Gemm(fc/Gemm, 6.weight) transB=1 -> output"});
    CHECK(model.node_names ==
          Texts{"conv/Conv", "norm/BatchNormalization", "2/Relu", "3/Flatten", "fc/Gemm", "6/Gemm"});

    // The tensors are those of the file for PyTorch.
    const TemporaryFolder folder;
    write_torch_file(folder.path("x.pth"), Small::layers, state_of<Small>());
    const TorchFile file(folder.path("x.pth"));
    CHECK(model.initializers.size() == file.tensors().size());
    for (const auto& each : model.initializers) {
        const auto& name = each.first;
        const auto& tensor = each.second;
        CAPTURE(name);
        const SafeTensor* const stored = file.find(name);
        REQUIRE(stored != nullptr);
        CHECK(tensor.type == 1);
        CHECK(tensor.dims == stored->shape());
        std::vector<float> values(static_cast<std::size_t>(stored->elements()));
        file.read_floats(*stored, values.data());
        CHECK(tensor.values<float>() == values);
    }
}

TEST_CASE("a convolution has its groups, its dilations and both sides of its window") {
    struct Net : Sequential<Input<9, 8, 6>, Conv2d<4, kernel(3, 5), stride(2, 1), pad(1, 2), dilation(2, 1), groups(2)>,
                            Conv2d<8, 3, dilation(2), depthwise, no_bias>, Conv2d<2, 1, groups(1), dilation(1)>> {};
    const OnnxModel model = written<Net>();
    CHECK(model.nodes ==
          Texts{"Conv(input, 0.weight, 0.bias) kernel_shape=3,5 strides=2,1 pads=1,2,1,2 dilations=2,1 group=2 -> "
                "0/Conv",
                "Conv(0/Conv, 1.weight) kernel_shape=3,3 strides=1,1 pads=2,2,2,2 dilations=2,2 group=4 -> 1/Conv",
                "Conv(1/Conv, 2.weight, 2.bias) kernel_shape=1,1 strides=1,1 pads=0,0,0,0 -> output"});
    CHECK(model.outputs == Texts{"output: 1 [N, 2, 4, 8]"});
    CHECK(model.initializers.at("0.weight").dims == std::vector<std::int64_t>{4, 3, 3, 5});
    CHECK(model.initializers.at("1.weight").dims == std::vector<std::int64_t>{8, 1, 3, 3});
}

TEST_CASE("images are channels last in the file if the options say so") {
    struct Net : Sequential<Input<4, 2, 3>, Dropout<0.5>, Output<"same">, Flatten, Output<"flat">, Sigmoid> {};
    const OnnxModel model = written<Net>({.layout = OnnxLayout::nhwc});
    CHECK(model.inputs == Texts{"input: 1 [N, 4, 2, 3]"});
    CHECK(model.outputs == Texts{"same: 1 [N, 4, 2, 3]", "flat: 1 [N, 24]", "output: 1 [N, 24]"});
    CHECK(model.nodes ==
          Texts{"Transpose(input) perm=0,3,1,2 -> input/Transpose", "Flatten(input/Transpose) -> 2/Flatten",
                "Sigmoid(2/Flatten) -> 4/Sigmoid", "Transpose(input/Transpose) perm=0,2,3,1 -> same",
                // From (c, h, w) to (h, w, c).
                "Reshape(2/Flatten, 2/Flatten/Reshape/constant) -> 2/Flatten/Reshape",
                "Transpose(2/Flatten/Reshape) perm=0,2,1 -> 2/Flatten/Reshape/Transpose",
                "Reshape(2/Flatten/Reshape/Transpose, 2/Flatten/Reshape/Transpose/Reshape/constant) -> flat",
                "Reshape(4/Sigmoid, 4/Sigmoid/Reshape/constant) -> 4/Sigmoid/Reshape",
                "Transpose(4/Sigmoid/Reshape) perm=0,2,1 -> 4/Sigmoid/Reshape/Transpose",
                "Reshape(4/Sigmoid/Reshape/Transpose, 4/Sigmoid/Reshape/Transpose/Reshape/constant) -> "
                "output"});
    const OnnxTensor& apart = model.initializers.at("2/Flatten/Reshape/constant");
    CHECK(apart.type == 7);
    CHECK(apart.dims == std::vector<std::int64_t>{3});
    CHECK(apart.values<std::int64_t>() == std::vector<std::int64_t>{0, 3, 8});
    CHECK(model.initializers.at("4/Sigmoid/Reshape/Transpose/Reshape/constant").values<std::int64_t>() ==
          std::vector<std::int64_t>{0, -1});
}

TEST_CASE(
    "features that are flattened with their channels last keep their order, and so do the weights that read them") {
    struct Net : Sequential<Input<2, 2, 3>, FlattenChannelsLast, Named<"fc", Linear<1, no_bias>>> {};
    const OnnxModel model = written<Net>();
    CHECK(model.nodes == Texts{"Transpose(input) perm=0,2,3,1 -> 0/Transpose", "Flatten(0/Transpose) -> 0/Flatten",
                               "Gemm(0/Flatten, fc.weight) transB=1 -> output"});
    const std::vector<float> parameters = arena<Net>(1);
    CHECK(model.initializers.at("fc.weight").values<float>() ==
          std::vector<float>(parameters.begin(), parameters.begin() + 12));
}

TEST_CASE("an average with windows that overlap is two products with matrices of the file") {
    struct Net : Sequential<Input<3, 4, 2>, Named<"mean", AdaptiveAvgPool2d<2, 3>>> {};
    const OnnxModel model = written<Net>();
    CHECK(model.nodes == Texts{"MatMul(mean/MatMul/constant, input) -> mean/MatMul",
                               "MatMul(mean/MatMul, mean/MatMul_1/constant) -> output"});
    const OnnxTensor rows = model.initializers.at("mean/MatMul/constant"),
                     columns = model.initializers.at("mean/MatMul_1/constant");
    CHECK(rows.dims == std::vector<std::int64_t>{2, 3});
    CHECK(rows.type == 1);
    CHECK(rows.values<float>() == std::vector<float>{0.5F, 0.5F, 0, 0, 0.5F, 0.5F});
    CHECK(columns.dims == std::vector<std::int64_t>{4, 3});
    CHECK(columns.values<float>() == std::vector<float>{0.5F, 0, 0, 0.5F, 0.5F, 0, 0, 0.5F, 0.5F, 0, 0, 0.5F});
    CHECK(model.outputs == Texts{"output: 1 [N, 2, 2, 3]"});
}

TEST_CASE("inputs have the types and the names of their columns, and one value may be several outputs") {
    struct Net : Sequential<Input<2, 2, 3>, FromBytes<means(1, 2, 3), deviations(4)>, Flatten, Keep<"image">,
                            FromInput<"words", 5>, Embedding<9, 2, padding_id(3)>, Flatten, ConcatWith<"image">,
                            Output<"a">, Output<"b">> {};
    const OnnxModel model = written<Net>();
    CHECK(model.inputs == Texts{"input: 2 [N, 3, 2, 2]", "words: 6 [N, 5]"});
    CHECK(model.outputs == Texts{"a: 1 [N, 22]", "b: 1 [N, 22]"});
    CHECK(std::ranges::find(model.nodes, "Cast(input) to=1 -> 0/Cast") != model.nodes.end());
    CHECK(std::ranges::find(model.nodes, "Gather(4.weight, words) -> 4/Gather") != model.nodes.end());
    // The features of the image are in its own order before they are joined with others.
    CHECK(std::ranges::find(model.nodes, "Reshape(1/Flatten, 1/Flatten/Reshape/constant) -> 1/Flatten/Reshape") !=
          model.nodes.end());
    CHECK(std::ranges::find(model.nodes, "Identity(a) -> b") != model.nodes.end());
    const OnnxTensor& means = model.initializers.at("0/Sub/constant");
    CHECK(means.dims == std::vector<std::int64_t>{3, 1, 1});
    CHECK(means.values<float>() == std::vector<float>{1, 2, 3});
    // The row of the padding is zeros, whatever it was before.
    std::vector<float> table(18);
    std::iota(table.begin(), table.end(), 1.0F);
    table[6] = table[7] = 0;
    CHECK(model.initializers.at("4.weight").values<float>() == table);
}

TEST_CASE("a product with a value of one position has it in as many extents as the other value") {
    struct Sequence : Sequential<Input<13, 4>, Multiply<Identity, Branch<GlobalAvgPool1d, Sigmoid>>, Flatten> {};
    const auto nodes_of = []<class N>(N) { return written<N>().nodes; };
    const auto has = [](const Texts& nodes, const char* node) {
        CAPTURE(node);
        CHECK(std::ranges::find(nodes, node) != nodes.end());
    };
    const OnnxModel gated = written<Sequence>();
    CHECK(gated.outputs == Texts{"output: 1 [N, 52]"});
    CHECK(gated.initializers.at("3/Reshape/constant").values<std::int64_t>() == std::vector<std::int64_t>{0, 1, 4});
    struct GateFirst : Sequential<Input<13, 4>, Keep<"map">, GlobalAvgPool1d, MultiplyBy<"map">> {};
    has(nodes_of(GateFirst{}), "Mul(input, 2/Reshape) -> output");
    struct Pixel : Sequential<Input<1, 1, 4>, Keep<"pixel">, Flatten, MultiplyBy<"pixel">> {};
    CHECK(written<Pixel>().initializers.at("2/Reshape/constant").values<std::int64_t>() ==
          std::vector<std::int64_t>{0, 4});
}

TEST_CASE("ids keep their order where they get other extents") {
    struct Net : Sequential<Input<2, 3, 4>, Reshape<6, 4>, Embedding<20, 2>> {};
    struct Image : Sequential<Input<24>, Reshape<2, 3, 4>, Embedding<20, 2>, Flatten> {};
    for (const OnnxModel& model : {written<Net>(), written<Image>()}) {
        CHECK(model.nodes[0].starts_with("Reshape(input, "));
        CHECK(model.nodes[1].starts_with("Gather("));
    }
}

TEST_CASE("the moving averages are written if there are any, or what the options ask for") {
    const TemporaryFolder folder;
    const auto bias_of = [&](const auto& source, const OnnxOptions& options = {}) {
        write_onnx<Net>(folder.path("x.onnx"), source, options);
        return read_onnx(read_bytes(folder.path("x.onnx"))).initializers.at("conv1.bias").values<float>();
    };
    Checkpoint checkpoint = small_checkpoint();
    CHECK(bias_of(checkpoint) == std::vector<float>{1007, 1008, 1009});
    CHECK(bias_of(checkpoint, {.weights = Weights::trained}) == std::vector<float>{7, 8, 9});
    const struct {
        TrainingState now;
        [[nodiscard]] TrainingState state() const { return now; }
    } training{checkpoint.state};
    CHECK(bias_of(training) == std::vector<float>{1007, 1008, 1009});
    checkpoint.state.averages.clear();
    CHECK(bias_of(checkpoint) == std::vector<float>{7, 8, 9});
    CHECK(refusal<Net>(checkpoint.state, {.weights = Weights::averages}) ==
          "FILE is not written: the state has no moving averages");
    // Of a training in which other parameters are frozen, which has them in another order.
    struct Tuned : Frozen<Net, "conv1.*"> {};
    CHECK(bias_of(TrainingState{.parameters = arena<Tuned>(1), .tensors = state_tensors(Tuned::layers)}) ==
          std::vector<float>{7, 8, 9});
}

TEST_CASE("the layers may have other extents than those of the type") {
    std::vector<LayerInfo> layers(Small::layers.begin(), Small::layers.end());
    layers.back().output = {7};
    Parameters of_head{layers.back().parameters.list[0]};
    of_head.list[0].shape = {7, 5};
    layers.back().parameters = {of_head.list.data(), of_head.count};
    lay_out_parameters(layers);
    const TemporaryFolder folder;
    const TrainingState state{.parameters = std::vector<float>(static_cast<std::size_t>(arena_elements(layers)), 1),
                              .buffers = initial_buffers(layers)};
    write_onnx<Small>(folder.path("x.onnx"), layers, state);
    const OnnxModel model = read_onnx(read_bytes(folder.path("x.onnx")));
    CHECK(model.outputs == Texts{"output: 1 [N, 7]"});
    CHECK(model.initializers.at("6.weight").dims == std::vector<std::int64_t>{7, 5});
    layers.pop_back();
    CHECK(contains(message_of<InvalidArgument>([&] { write_onnx<Small>(folder.path("y.onnx"), layers, state); }),
                   " is not written: 6 layers were given, and the network has 7"));
}

TEST_CASE("the same state is the same file") {
    const TemporaryFolder folder;
    write_onnx<Small>(folder.path("x.onnx"), state_of<Small>());
    write_onnx<Small>(folder.path("y.onnx"), state_of<Small>());
    CHECK(read_bytes(folder.path("x.onnx")) == read_bytes(folder.path("y.onnx")));
    CHECK(message_of<DataError>([&] {
              write_onnx<Small>(folder.path("none/x.onnx"), state_of<Small>());
          }).starts_with(folder.path("none/x.onnx") + " cannot be written: "));
}

TEST_CASE("a state that is of another network or not finite, or options that do not fit, are errors and no file") {
    TrainingState state = state_of<Small>();
    state.parameters.pop_back();
    CHECK(contains(refusal<Small>(state), " elements of parameters "));
    state = state_of<Small>();
    state.buffers.clear();
    CHECK(contains(refusal<Small>(state), "FILE is not written: the running statistics of the state have 0 elements"));
    state = state_of<Small>();
    state.parameters[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(refusal<Small>(state), "FILE is not written: the state's conv.weight is nan at "));
    state = state_of<Small>();
    state.tensors = state_tensors(Net::layers);
    CHECK(refusal<Small>(state) != "(no exception)");
    CHECK(refusal<Small>(state_of<Small>(), {.metadata = {{"a", "1"}, {"b", "2"}, {"a", "3"}}}) ==
          "FILE is not written: its metadata have the key a twice");
}

TEST_CASE("a model of more than 2 GB is an error before anything is computed or written") {
    struct Large : Sequential<Input<60'000>, Linear<10'000>> {};
    CHECK(refusal<Large>({}) ==
          "FILE is not written: it would have 2.4 GB, and an ONNX file has at most 2^31 - 1 bytes");
}

TEST_CASE("names that ONNX cannot tell apart are an error") {
    struct SameEnds : Sequential<Input<3>, Linear<2>, Output<"input">> {};
    CHECK(refusal<SameEnds>(state_of<SameEnds>()) ==
          "an ONNX file cannot have two of the network's inputs, outputs and parameters with the name input");
    struct LikeParameter : Sequential<Input<3>, Linear<2>, Output<"0.weight">, Sigmoid> {};
    CHECK(contains(refusal<LikeParameter>(state_of<LikeParameter>()), "with the name 0.weight"));
    // Others give way.
    struct LikeNode : Sequential<Input<3>, Named<"a", Linear<2>>, Output<"a/Gemm">, Sigmoid> {};
    CHECK(written<LikeNode>().nodes ==
          Texts{"Gemm(input, a.weight, a.bias) transB=1 -> a/Gemm", "Sigmoid(a/Gemm) -> output"});
}

namespace {

/// A layer of a user, whose ONNX form is `Form`.
template <class Form>
struct Own {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        return {Parameter{.name = "scale", .shape = {input.channels()}}, Parameter{.name = "shift", .shape = {1}}};
    }
    static constexpr GraphOperators onnx(const Shape&) { return Form::operators(); }
};
struct Scaled {
    static constexpr GraphOperators operators() {
        return {GraphOperator("Mul").input().parameter("scale"), GraphOperator("Tanh"),
                GraphOperator("Add").result(0).previous(), GraphOperator("Add").previous().constant(0.5)};
    }
};
struct OtherName {
    static constexpr GraphOperators operators() { return GraphOperator("Mul").input().parameter("weight"); }
};
struct LaterResult {
    static constexpr GraphOperators operators() { return GraphOperator("Mul").input().result(0); }
};
struct NoSecond {
    static constexpr GraphOperators operators() { return GraphOperator("Mul").input().second_input(); }
};
struct Unchanged {
    static constexpr GraphOperators operators() { return {}; }
};
template <class Form>
struct NetOf : Sequential<Input<12>, Sigmoid, Named<"own", Own<Form>>> {};

}  // namespace

TEST_CASE("a layer of a user has an ONNX form by its member, and mistakes in it are errors with its name") {
    const OnnxModel model = written<NetOf<Scaled>>();
    CHECK(model.nodes == Texts{"Sigmoid(input) -> 0/Sigmoid", "Mul(0/Sigmoid, own.scale) -> own/Mul",
                               "Tanh(own/Mul) -> own/Tanh", "Add(own/Mul, own/Tanh) -> own/Add",
                               "Add(own/Add, own/Add_1/constant) -> output"});
    CHECK(model.initializers.size() == 2);
    CHECK(model.initializers.at("own/Add_1/constant").dims.empty());
    CHECK(model.initializers.at("own/Add_1/constant").values<float>() == std::vector<float>{0.5F});
    CHECK(written<NetOf<Unchanged>>().nodes.back() == "Sigmoid(input) -> output");

    const auto mistake = []<class Form>(Form) { return refusal<NetOf<Form>>(state_of<NetOf<Form>>()); };
    CHECK(contains(mistake(OtherName()), "layer 2 (own, Own<"));
    CHECK(contains(mistake(OtherName()),
                   "): its ONNX operator Mul reads a parameter weight, and the layer has scale, shift"));
    CHECK(contains(mistake(LaterResult()), "): its ONNX operator Mul, number 0, reads the result of operator 0"));
    CHECK(contains(mistake(NoSecond()), ") reads one value, and its ONNX operator Mul reads a second one"));
}
