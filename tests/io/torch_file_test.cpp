// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/io/tensor_file.hpp
//
// Files of torch.save: what is read of them, and what is refused with which message. tests/interop reads those that
// PyTorch writes.
#include <cupola/io/torch_file.hpp>

#include "../test.hpp"

#include <throws_with.hpp>

#include "file_support.hpp"
#include "torch_support.hpp"

using namespace io_tests;
using namespace std::string_literals;
using Floats = std::vector<float>;

namespace {

const std::string six = bytes_of(Floats{0, 1, 2, 3, 4, 5});

std::string refusal(const std::string& bytes) {
    return message_of<DataError>([&] { TorchFile file("f", in_memory(bytes)); });
}
std::string refused_object(const std::string& object) { return refusal(torch_zip(object, {six})); }
/// A dictionary of one tensor.
std::string one(const std::string& tensor) { return pickle::dictionary({{"a", tensor}}); }
std::string one_of(const pickle::Tensor& tensor) { return one(pickle::tensor(tensor)); }

Floats floats_of(const TensorFile& file, const std::string& name) {
    const SafeTensor* const tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    std::size_t size = 1;
    for (const std::int64_t extent : tensor->shape()) size *= static_cast<std::size_t>(extent);
    Floats values(size, -1);
    file.read_floats(*tensor, values.data());
    return values;
}
Floats floats_in(const std::string& bytes, const std::string& name = "a") {
    const TorchFile file("f", in_memory(bytes));
    return floats_of(file, name);
}
std::vector<std::string> names_of(const TensorFile& file) {
    std::vector<std::string> names;
    for (const SafeTensor& tensor : file.tensors()) names.emplace_back(tensor.name);
    return names;
}
std::vector<std::string> names_in(const std::string& object) {
    return names_of(TorchFile("f", in_memory(torch_zip(object, {six}))));
}

const std::string some = pickle::tensor({.extents = {2, 3}, .strides = {3, 1}});

}  // namespace

TEST_CASE("both formats are read: tensors by their names, with types and extents, and values of other kinds left out") {
    const std::string object =
        pickle::dictionary({{"w", some},
                            {"epoch", pickle::integer(3)},
                            {"b", pickle::tensor({.extents = {}, .strides = {}, .offset = 5})},
                            {"size", pickle::global("torch", "Size") + "(" + pickle::numbers({1, 2}) + "tR"},
                            {"type", pickle::global("torch", "float32")},
                            {"nothing", "N"}});
    for (const std::string& bytes :
         {torch_zip(object, {six}), torch_zip(object, {six}, {.zip64 = true}), torch_legacy(object, {six})}) {
        const TorchFile file("f", in_memory(bytes));
        CHECK(names_of(file) == std::vector<std::string>{"b", "w"});
        CHECK(file.find("w")->type == "F32");
        CHECK(file.find("w")->extents == "2,3");
        CHECK(file.find("w")->shape() == std::vector<std::int64_t>{2, 3});
        CHECK(file.find("b")->shape().empty());
        CHECK(file.find("c") == nullptr);
        CHECK(file.metadata().empty());
        CHECK_FALSE(file.has_checksum());
        CHECK(floats_of(file, "w") == Floats{0, 1, 2, 3, 4, 5});
        CHECK(floats_of(file, "b") == Floats{5});
    }
}

TEST_CASE("a view is read with its strides: transposed, a slice, and repeated elements") {
    const auto read = [](const pickle::Tensor& tensor) { return floats_in(torch_zip(one_of(tensor), {six})); };
    CHECK(read({.extents = {3, 2}, .strides = {1, 3}}) == Floats{0, 3, 1, 4, 2, 5});
    CHECK(read({.extents = {2, 2}, .strides = {3, 2}}) == Floats{0, 2, 3, 5});
    CHECK(read({.extents = {2}, .strides = {3}, .offset = 1}) == Floats{1, 4});
    CHECK(read({.extents = {2, 3}, .strides = {0, 2}, .offset = 1}) == Floats{1, 3, 5, 1, 3, 5});
    CHECK(read({.extents = {3, 2}, .strides = {2, 0}}) == Floats{0, 0, 2, 2, 4, 4});
    CHECK(read({.extents = {1, 2, 1}, .strides = {77, 5, 99}}) == Floats{0, 5});
    CHECK(read({.extents = {0, 3}, .strides = {3, 1}, .offset = 6}).empty());
}

TEST_CASE("tensors of one storage, of several types and of bytes are read") {
    CHECK(floats_in(torch_zip(pickle::dictionary(
                                  {{"a", some}, {"b", pickle::tensor({.extents = {2}, .strides = {1}, .offset = 4})}}),
                              {six}),
                    "b") == Floats{4, 5});
    const auto read = [](const std::string& type, const std::string& bytes, std::int64_t count) {
        return floats_in(
            torch_zip(one_of({.extents = {count}, .strides = {1}, .type = type, .count = count}), {bytes}));
    };
    CHECK(read("DoubleStorage", bytes_of(std::vector<double>{1.5, -2}), 2) == Floats{1.5F, -2});
    CHECK(read("HalfStorage", bytes_of(std::vector<std::uint16_t>{0x3C00, 0xC000}), 2) == Floats{1, -2});
    CHECK(read("BFloat16Storage", bytes_of(std::vector<std::uint16_t>{0x3F80, 0xC000}), 2) == Floats{1, -2});
    const auto of_bytes = [](const std::string& type) {
        return one(
            pickle::call("_rebuild_tensor_v3",
                         {pickle::tuple({pickle::text("storage"), pickle::global("torch.storage", "UntypedStorage"),
                                         pickle::text("0"), pickle::text("cpu"), pickle::integer(24)}) +
                              "Q",
                          pickle::integer(1), pickle::numbers({2}), pickle::numbers({1}), "\x89", "N",
                          pickle::global("torch", type)}));
    };
    CHECK(floats_in(torch_zip(of_bytes("float32"), {six})) == Floats{1, 2});
    const TorchFile file("f", in_memory(torch_zip(of_bytes("uint16"), {six})));
    CHECK(file.tensors()[0].type == "U16");
}

TEST_CASE(
    "a parameter is its tensor, and pickles of Python 2 have lists for tuples and a list of pairs for a dictionary") {
    CHECK(names_in(one(pickle::call("_rebuild_parameter", {some, "\x88", "N"}))) == std::vector<std::string>{"a"});
    // A parameter with attributes of its own, whose values may be anything.
    const std::string attributes = pickle::dictionary({{"mine", pickle::integer(3)}, {"other", some}});
    const std::string with_state = pickle::call("_rebuild_parameter_with_state", {some, "\x88", "N", attributes});
    CHECK(names_in(one(with_state)) == std::vector<std::string>{"a"});
    CHECK(floats_in(torch_zip(one(with_state), {six})) == floats_in(torch_zip(one(some), {six})));
    const std::string extents = "](" + pickle::integer(2) + "e", strides = "](" + pickle::integer(1) + "e";
    const std::string tensor = pickle::call(
        "_rebuild_tensor", {pickle::storage("FloatStorage", "0", 6), pickle::integer(1), extents, strides});
    const std::string object = pickle::global("collections", "OrderedDict") +
                               "](](U\x01"
                               "a" +
                               tensor + "ee\x85R";
    CHECK(floats_in(torch_legacy(object, {six})) == Floats{1, 2});
}

TEST_CASE("protocols 4 and 5 are read: frames, numbered values, short texts and names on the stack") {
    const auto text = [](const std::string& value) {
        return "\x8C" + std::string(1, static_cast<char>(value.size())) + value;
    };
    const std::string object = "\x80\x05\x95" + pickle::bytes_of(1, 8) + "}\x94" + text("a") + "\x94" +
                               text("torch._utils") + text("_rebuild_tensor_v2") + "\x93\x94(" +
                               pickle::storage("FloatStorage", "0", 6) + "K\x02K\x03\x85K\x01\x85\x89NtRsh\x00"s;
    CHECK(floats_in(torch_zip(object, {six})) == Floats{2, 3, 4});
}

TEST_CASE(
    "a dictionary under state_dict, model or model_state_dict is found, and what wrappers put before every name") {
    const std::string inner = pickle::dictionary({{"module.w", some}, {"module.b", some}});
    CHECK(names_in(pickle::dictionary({{"loss", some}, {"state_dict", inner}})) ==
          std::vector<std::string>{"module.b", "module.w"});
    CHECK(names_in(pickle::dictionary({{"model_state_dict", inner}, {"optimizer_state_dict", inner}})).size() == 2);
    const std::string nested = pickle::dictionary({{"model", pickle::dictionary({{"state_dict", inner}})}});
    CHECK(names_in(nested).size() == 2);
    const auto wrapper = [](const std::string& object) {
        return TorchFile("f", in_memory(torch_zip(object, {six}))).wrapper();
    };
    CHECK(wrapper(nested) == "module.");
    CHECK(wrapper(pickle::dictionary({{"module.w", some}, {"b", some}})).empty());
    CHECK(wrapper(pickle::dictionary({{"_orig_mod.module.w", some}})) == "_orig_mod.module.");
    CHECK(wrapper(pickle::dictionary({})).empty());
    CHECK(refused_object(pickle::dictionary({{"model", inner}, {"state_dict", inner}})) ==
          "f has dictionaries under both state_dict and model, and which of them is meant is not known; in Python, "
          "torch.save(torch.load(path)[\"model\"], new_path) writes one alone");
    CHECK(
        refused_object(pickle::dictionary({{"model_state_dict", inner}, {"model", inner}})) ==
        "f has dictionaries under both model and model_state_dict, and which of them is meant is not known; in Python, "
        "torch.save(torch.load(path)[\"model_state_dict\"], new_path) writes one alone");
    const std::string looked_into = "; state_dict, model and model_state_dict are looked into";
    CHECK(refused_object(pickle::dictionary({{"net", inner}, {"epoch", "N"}})) ==
          "f has no tensors by name: its names are net, epoch" + looked_into +
              ", and in Python torch.save(torch.load(path)[\"net\"], new_path) writes another one alone");
    CHECK(refused_object(pickle::dictionary({{"state_dict", "}"}, {"epoch", "N"}})) ==
          "f has no tensors by name: its names are state_dict (empty), epoch" + looked_into);
    // Settings of a network, not its tensors.
    const std::string settings = pickle::dictionary({{"depth", pickle::integer(18)}, {"layers", "](NNe"}});
    CHECK(names_in(pickle::dictionary({{"model", settings}, {"state_dict", inner}})).size() == 2);
    CHECK(names_in(pickle::dictionary({{"fc.weight", some}, {"model", settings}})) ==
          std::vector<std::string>{"fc.weight"});
    const std::string arguments = pickle::dictionary({{"args", pickle::global("argparse", "Namespace") + ")\x81"}});
    CHECK(names_in(pickle::dictionary({{"fc.weight", some}, {"model", arguments}})) ==
          std::vector<std::string>{"fc.weight"});
    // What is in the only dictionary is named, although it has no tensors.
    CHECK(refused_object(pickle::dictionary({{"state_dict", pickle::dictionary({{"encoder", inner}})}})) ==
          "f has no tensors by name: its names are encoder" + looked_into +
              ", and in Python torch.save(torch.load(path)[\"encoder\"], new_path) writes another one alone");
    CHECK(refused_object("}" + pickle::integer(1) + some + "s") ==
          "f has no tensors by name: its names are numbers" + looked_into);
    CHECK(refused_object("](" + some + "e") ==
          "f holds a list, and a dictionary of names and tensors is read, such as a state dict");
    CHECK(refused_object(pickle::dictionary({{"a", some}, {"a", some}})) == "f is damaged: it has two tensors named a");
}

TEST_CASE(
    "objects of Python are left out beside a dictionary of tensors, and refused by name in it and instead of it") {
    const std::string state = pickle::dictionary({{"a", some}});
    const std::string instance = pickle::global("argparse", "Namespace") + ")\x81}" + pickle::text("lr") + "Nsb";
    const std::string made = pickle::global("datetime", "datetime") + pickle::tuple({pickle::text("now")}) + "R";
    const std::string filled = pickle::global("collections", "defaultdict") + ")R(" + pickle::text("x") + some + "u(" +
                               some + "e" + pickle::text("y") + "Ns" + "Na";
    const std::string with_arguments = pickle::global("m", "C") + ")}\x92";
    const std::string by_stack = pickle::text("os") + pickle::text("system") + "\x93" + pickle::text("true") + "\x85R";
    const std::string parameter = pickle::call("_rebuild_parameter", {made, "\x88", "N"});
    const std::string sets = "\x8F(NN\x90(N\x91\x86", bytes = "\x96" + pickle::bytes_of(3, 8) + "abc";
    for (const std::string& object :
         {instance, made, filled, with_arguments, by_stack, parameter, sets, bytes, pickle::global("m", "f")}) {
        const std::string saved = pickle::dictionary({{"args", object}, {"model", state}, {"last", object}});
        CHECK(names_in(saved) == std::vector<std::string>{"a"});
        CHECK(floats_in(torch_legacy(saved, {six})) == Floats{0, 1, 2, 3, 4, 5});
    }
    // The format before torch 1.6 stores the source of a network's class.
    const std::string of_network = pickle::tuple({pickle::text("module"), pickle::global("m", "Net"), "N", "N"}) + "Q";
    CHECK(refusal(torch_legacy(of_network + ")\x81}b", {})) ==
          "f holds an object of m.Net, and a dictionary of names and tensors is read: in Python, "
          "torch.save(network.state_dict(), path) writes that of a network");
    CHECK(contains(refused_object(by_stack), "f holds an object of os.system, and "));
    CHECK(
        refused_object(pickle::dictionary({{"epoch", "N"}, {"a", some}, {"when", made}})) ==
        "f: when is an object of datetime.datetime, and among tensors only numbers, texts, lists and dictionaries are "
        "left out");
    CHECK(refused_object(pickle::dictionary({{"model", instance}, {"epoch", "N"}})) ==
          "f has no tensors by name: its names are model (an object of argparse.Namespace), epoch; state_dict, model "
          "and model_state_dict are looked into");
    CHECK(contains(refused_object(pickle::storage("QInt8Storage", "0", 6)),
                   "a storage is a torch.QInt8Storage, whose elements are not read"));
    CHECK(contains(refused_object(pickle::global("torch", "Size") + ")\x81"), "an object is made of a function"));
    CHECK(contains(refused_object("i"), "the instruction 105 does not occur in files of tensors"));
    CHECK(contains(refused_object("\x80\x01"), "the protocol is 1; 2 to 5 are read"));
    CHECK(contains(refused_object(pickle::global("torch", "FloatStorage") + ")R"), "a call of a type"));
    CHECK(contains(refused_object(pickle::global("m", std::string(201, 'x'))), "a name has more than 200 characters"));
    CHECK(contains(refused_object(pickle::text(std::string(201, 'x')) + pickle::text("y") + "\x93"),
                   "a name has more than 200 characters"));
    std::string many;
    for (int i = 0; i < 1001; ++i) many += pickle::global("m", "f" + std::to_string(i));
    CHECK(contains(refused_object(many), "it names more than 1000 classes"));
}

TEST_CASE("tensors of the first versions of PyTorch are read: an object of their class, and then its attributes") {
    const auto attributes = [](const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides) {
        return pickle::tuple({pickle::storage("FloatStorage", "0", 6), pickle::integer(0), pickle::numbers(extents),
                              pickle::numbers(strides)});
    };
    for (const std::string& made :
         {pickle::global("torch", "FloatTensor") + ")R", pickle::global("torch.cuda", "FloatTensor") + ")R",
          pickle::global("torch", "FloatTensor") + ")\x81"}) {
        // Its number in the memo is given before it has its attributes.
        const std::string object =
            pickle::dictionary({{"a", made + "q\x07" + attributes({3, 2}, {1, 3}) + "b"}, {"b", "h\x07"}, {"c", "N"}});
        CHECK(floats_in(torch_legacy(object, {six})) == Floats{0, 3, 1, 4, 2, 5});
        CHECK(floats_in(torch_zip(object, {six}), "b") == Floats{0, 3, 1, 4, 2, 5});
        CHECK(refused_object(one(made)) == "f: a is a tensor without a storage");
        CHECK(contains(refused_object(one(made + attributes({6}, {1}) + "b" + attributes({6}, {1}) + "b")),
                       "attributes are set of a tensor"));
        CHECK(contains(refused_object(one(made + "}b")), "attributes are set of a tensor"));
        CHECK(contains(refused_object(one(made + "(NNNNtb")), "a tensor is not stated by a storage, an offset, "));
        CHECK(contains(refused_object(one(made + attributes({7}, {1}) + "b")), "f: a "));
    }
    CHECK(contains(refused_object(one(pickle::global("torch", "UntypedTensor") + ")R")),
                   "an object of torch.UntypedTensor"));
}

TEST_CASE("values are set in lists and dictionaries alone, and only values that are there are used") {
    // CVE-2026-24747: PyTorch wrote past the end of what was no dictionary.
    CHECK(
        contains(refused_object(some + pickle::text("a") + "Ns"), "items are set in a tensor, which is no dictionary"));
    CHECK(contains(refused_object("](" + pickle::text("a") + "Nu"), "items are set in a list, which is no dictionary"));
    CHECK(contains(refused_object("}Na"), "items are set in a dictionary, which is no list"));
    CHECK(contains(refused_object("}(Nu"), "a key has no value"));
    CHECK(contains(refused_object("]}b"), "attributes are set of a list"));
    for (const std::string& code :
         {"s"s, "a"s, "(s"s, "Na"s, "\x87"s, "N(\x85"s, "R"s, "Q"s, "\x93"s, "b"s, "\x94"s, ""s})
        CHECK(contains(refused_object(code), "a value is missing"));
    for (const std::string& code : {"t"s, "e"s, "u"s}) CHECK(contains(refused_object(code), "a mark is missing"));
    CHECK(contains(refused_object("h\x05"), "there is no value with the number 5"));
    CHECK(contains(refused_object("Nr\xFF\xFF\xFF\xFF"), "a value has the number 4294967295, more than there can be"));
    CHECK(contains(refused_object(pickle::tuple({pickle::text("storage"), "N", "N", "N", "N"}) + "Q"),
                   "something other than a storage is stored outside of the pickle"));
    CHECK(contains(refused_object(pickle::storage("FloatStorage", "0", -1)), "a storage's size is -1"));
    CHECK(contains(refused_object(pickle::call("_rebuild_tensor_v2", {"N", "N", "N", "N"})),
                   "a tensor is not stated by a storage, an offset, extents and strides"));
}

TEST_CASE("a tensor lies in its storage, a storage in the file, and elements are repeated by stride 0 alone") {
    const auto refused = [](const pickle::Tensor& tensor) { return refused_object(one_of(tensor)); };
    constexpr std::int64_t huge = std::int64_t{1} << 60;
    CHECK(refused({.extents = {2, 3}, .strides = {3, 1}, .offset = 1}) ==
          "f: a reaches past its storage, which has 6 elements");
    CHECK(refused({.extents = {3}, .strides = {huge}}) == "f: a reaches past its storage, which has 6 elements");
    CHECK(refused({.extents = {17}, .strides = {huge}}) == "f: a reaches past its storage, which has 6 elements");
    CHECK(refused({.extents = {1}, .strides = {1}, .offset = huge}) ==
          "f: a reaches past its storage, which has 6 elements");
    CHECK(refused({.extents = {2, 3}, .strides = {3, 1}, .count = 7}) ==
          "f: a has a storage of 7 elements of 4 bytes, and the file has 24 bytes of it");
    CHECK(refused({.extents = {1}, .strides = {1}, .count = std::int64_t{1} << 62}) ==
          "f: a has a storage of 4611686018427387904 elements of 4 bytes, and the file has 24 bytes of it");
    CHECK(refused({.extents = {1}, .strides = {1}, .key = "9"}) ==
          "f: a has the storage 9, which the file does not have");
    CHECK(refused({.extents = {2, 3}, .strides = {1, 1}}) ==
          "f: a has strides by which its elements overlap; only an index of stride 0 may repeat them");
    CHECK(refused({.extents = {huge, 16}, .strides = {0, 0}}) == "f: a has more elements than can be counted");
    CHECK(refused({.extents = {2}, .strides = {-1}, .offset = 1}) ==
          "f: a has an extent or a stride that is not a natural number");
    CHECK(refused({.extents = {2}, .strides = {}}) == "f: a has 1 extents and 0 strides; the most are 16");
    CHECK(refused({.extents = std::vector<std::int64_t>(17, 1), .strides = std::vector<std::int64_t>(17, 1)}) ==
          "f: a has 17 extents and 17 strides; the most are 16");
    const pickle::Tensor other{.extents = {1}, .strides = {1}, .type = "HalfStorage"};
    CHECK(refusal(torch_legacy(pickle::dictionary({{"a", some}, {"b", pickle::tensor(other)}}), {six})) ==
          "f is damaged: its storage 0 has two types");
    // As many elements as one cares to state, of the bytes of one: nothing is allocated for them.
    const TorchFile file("f", in_memory(torch_zip(one_of({.extents = {huge}, .strides = {0}}), {six})));
    CHECK(file.tensors()[0].shape() == std::vector<std::int64_t>{huge});
    CHECK(contains(refusal(torch_legacy(one_of({.extents = {1}, .strides = {1}, .count = 7}), {six})),
                   "f: a has a storage of 7 elements of 4 bytes, and the file has 24 bytes of it"));
}

TEST_CASE("archives of other programs and other formats are refused by name") {
    const std::string object = one(some);
    CHECK(refusal(torch_zip(object, {six}, {.method = 8})) ==
          "f has the compressed entry w/byteorder (method 8): torch.save stores its records uncompressed, and only "
          "those are read");
    CHECK(refusal(torch_zip(object, {six}, {.flags = 1})) ==
          "f has the encrypted entry w/byteorder, which cannot be read");
    CHECK(refusal(zip({{"w/data.pkl", pickle::whole(object)}, {"w/constants.pkl", ""}}, {.method = 8})) ==
          "f is a program of TorchScript, of torch.jit.save, which cannot be read: in Python, "
          "torch.save(torch.jit.load(path).state_dict(), new_path) writes its tensors");
    CHECK(refusal(zip({{"word/document.xml", "x"}})) ==
          "f is a zip archive, and not one of torch.save: it has no data.pkl");
    CHECK(refusal(zip({{"w/data.pkl", pickle::whole(object)}, {"w/byteorder", "big"}, {"w/data/0", six}})) ==
          "f has big-endian numbers, which cannot be read");
    CHECK(refusal(zip({{"w/data.pkl", pickle::whole(object)}, {"w/byteorder", "be"}, {"w/data/0", six}})) ==
          "f is damaged: its w/byteorder has 2 bytes, and neither \"little\" nor \"big\"");
    CHECK(refusal(torch_legacy(object, {six}, "\x89")) == "f has big-endian numbers, which cannot be read");
    CHECK(refusal(std::string(257, 'x') + "ustar" + std::string(300, '\0')) ==
          "f is a tar archive, as torch.save wrote before PyTorch 0.2, which cannot be read: in Python, "
          "torch.save(torch.load(path, weights_only=False), new_path) writes it anew");
    CHECK(refusal(pickle::whole(object)) == "f is a pickle of Python, and not one of torch.save");
    CHECK(refusal(pickle::whole("N")) == "f is a pickle of Python, and not one of torch.save");
    CHECK(refusal("GGUF") ==
          "f is neither a zip archive nor a pickle, as torch.save writes them: it begins with the bytes 47 47 55 46");
    CHECK(refusal("") == "f is neither a zip archive nor a pickle, as torch.save writes them: it has no bytes");
    CHECK(refusal(zip({})) == "f is a zip archive, and not one of torch.save: it has no data.pkl");
    CHECK(refusal(zip({{"a", "x"}, {"a", "y"}})) == "f is damaged: it has two entries named a");
    // In front of its data an entry has another name than in the directory, which has the place of another one.
    std::string swapped = torch_zip(object, {six, six});
    swapped.replace(swapped.find("w/data/0"), 8, "w/data/1");
    CHECK(refusal(swapped) ==
          "f is damaged: its entry w/data/0 of 24 bytes is not where the archive's directory has it");
}

TEST_CASE("a file that ends at any byte is refused, and one with any byte changed is read or refused") {
    const std::string object =
        pickle::dictionary({{"a", some}, {"b", pickle::tensor({.extents = {3}, .strides = {2}})}});
    for (const std::string& bytes :
         {torch_zip(object, {six}), torch_zip(object, {six}, {.zip64 = true}), torch_legacy(object, {six})}) {
        for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(refusal(bytes.substr(0, size)).empty());
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            for (const int change : {1, 0x80, 0xFF}) {
                std::string changed = bytes;
                changed[at] = static_cast<char>(changed[at] ^ change);
                try {
                    const TorchFile file("f", in_memory(changed));
                    for (const SafeTensor& tensor : file.tensors()) {
                        if (tensor.extents != "2,3" || !impl::is_stored_float(tensor.type)) continue;
                        Floats values(6);
                        file.read_floats(tensor, values.data());
                    }
                } catch (const DataError& error) {
                    CHECK(std::string_view(error.what()).starts_with("f"));
                }
            }
        }
    }
}

TEST_CASE("a pickle that asks for much gets no more than its bytes") {
    const auto bounded = [](const std::string& object) {
        const std::string bytes = torch_zip(object, {six});
        std::string message;
        const std::size_t peak = peak_bytes([&] { message = refusal(bytes); });
        CHECK_FALSE(message.empty());
        if (!sanitized) CHECK(peak < 160 * bytes.size() + (1U << 20));
    };
    const std::size_t many = 100'000;
    bounded("\x8D" + pickle::bytes_of(std::uint64_t{1} << 60, 8));
    bounded("\x8D" + pickle::bytes_of(~std::uint64_t{0}, 8));
    bounded("X\xFF\xFF\xFF\xFF");
    bounded("\x8B\xFF\xFF\xFF\x7F");
    bounded(std::string(many, '('));
    bounded(std::string(many, ']'));
    bounded("N" + std::string(many, '\x85'));
    bounded(")" + std::string(many, '\x94'));
    bounded("Nr" + pickle::bytes_of(100'000, 4));
    // A list of pairs that each of many dictionaries is made of.
    std::string dictionaries = "](";
    for (std::size_t i = 0; i < many / 10; ++i) dictionaries += "NN\x86";
    dictionaries += "e\x94" + pickle::global("collections", "OrderedDict") + "\x94";
    for (std::size_t i = 0; i < many / 10; ++i) dictionaries += "h\x01h\x00\x85R"s;
    bounded(dictionaries);
    // A dictionary that each of many keys has, in which tensors are looked for.
    std::string keys = "}(" + pickle::text("x") + "\x94}\x94(" + std::string(2 * many, 'N') + "u";
    for (std::size_t i = 0; i < many; ++i) keys += "h\x00h\x01"s;
    bounded(keys + "u");
    // Many objects of classes with long names, which take few bytes.
    std::string objects;
    for (int i = 0; i < 30; ++i) objects += pickle::text(std::string(199, static_cast<char>('A' + i))) + "\x94";
    for (std::size_t i = 0; i < 900; ++i)
        objects += {'h', static_cast<char>(i / 30), 'h', static_cast<char>(i % 30), '\x93'};
    bounded(objects + std::string(many, ')') + std::string(many, 'R'));
}

TEST_CASE("large tensors are read in pieces, whatever their strides are") {
    Floats values(24);
    std::iota(values.begin(), values.end(), 0.0F);
    const impl::FilePieces file("f", in_memory("head" + bytes_of(values)));
    const auto read = [&](std::vector<std::uint64_t> extents, std::vector<std::uint64_t> strides, std::size_t piece) {
        std::size_t size = 1;
        for (const std::uint64_t extent : extents) size *= extent;
        Floats result(size, -1);
        impl::ViewReader(file, {.type = 1, .begin = 4, .extents = std::move(extents), .strides = std::move(strides)},
                         result.data(), piece)
            .read();
        return result;
    };
    // Each element at its place, by the definition.
    const auto wanted = [&](const std::vector<std::uint64_t>& extents, const std::vector<std::uint64_t>& strides) {
        Floats result;
        for (std::uint64_t i = 0; i < extents[0]; ++i) {
            for (std::uint64_t j = 0; j < extents[1]; ++j) {
                for (std::uint64_t k = 0; k < extents[2]; ++k)
                    result.push_back(values[i * strides[0] + j * strides[1] + k * strides[2]]);
            }
        }
        return result;
    };
    for (const std::size_t piece : {4U, 8U, 12U, 20U, 40U, 1000U}) {
        for (const auto& [extents, strides] :
             std::vector<std::array<std::vector<std::uint64_t>, 2>>{{{{2, 3, 4}, {12, 4, 1}}},
                                                                    {{{4, 3, 2}, {1, 4, 12}}},
                                                                    {{{3, 2, 4}, {4, 12, 1}}},
                                                                    {{{2, 2, 2}, {12, 8, 3}}},
                                                                    {{{5, 2, 3}, {0, 12, 4}}},
                                                                    {{{2, 3, 4}, {1, 0, 6}}}})
            CHECK(read(extents, strides, piece) == wanted(extents, strides));
    }
    // Any part of a tensor.
    const Floats view = wanted({2, 3, 4}, {1, 8, 2});
    for (std::size_t first = 0; first <= view.size(); ++first) {
        for (std::size_t end = first; end <= view.size(); ++end) {
            Floats part(end - first, -1);
            impl::read_view(file, {.type = 1, .begin = 4, .extents = {2, 3, 4}, .strides = {1, 8, 2}}, first, part);
            CHECK(part == Floats(view.begin() + static_cast<std::ptrdiff_t>(first),
                                 view.begin() + static_cast<std::ptrdiff_t>(end)));
        }
    }
}

TEST_CASE("a part of a tensor is read by the number of its first element, and none behind its last") {
    const TorchFile file("f", in_memory(torch_zip(one_of({.extents = {3, 2}, .strides = {1, 3}}), {six})));
    Floats part(3, -1);
    file.read_floats(*file.find("a"), 2, part);
    CHECK(part == Floats{1, 4, 2});
    CHECK(message_of<InvalidArgument>([&] { file.read_floats(*file.find("a"), 4, part); }) ==
          "f: a has 6 elements, and not 3 from the number 4 on");
}

TEST_CASE("elements that are no floats, and tensors of another file, are not read as floats") {
    for (const auto& [type, name, bytes] : std::vector<std::tuple<std::string, std::string, std::size_t>>{
             {"LongStorage", "I64", 8}, {"ComplexFloatStorage", "C64", 8}, {"BoolStorage", "BOOL", 1}}) {
        const pickle::Tensor tensor{.extents = {2}, .strides = {1}, .type = type, .count = 2};
        const TorchFile file("f", in_memory(torch_zip(one_of(tensor), {std::string(2 * bytes, '\1')})));
        Floats values(2, -1);
        CHECK(message_of<DataError>([&] { file.read_floats(*file.find("a"), values.data()); }) ==
              "f: a has elements of type " + name + "; F32, F16, BF16 and F64 are supported");
        CHECK(values == Floats{-1, -1});
    }
    const TorchFile file("f", in_memory(torch_zip(one_of({.extents = {2}, .strides = {1}}), {six}))),
        larger("l", in_memory(torch_zip(pickle::dictionary({{"a", some}, {"b", some}}), {six})));
    Floats values(6, -1);
    CHECK(message_of<InvalidArgument>([&] { file.read_floats(*larger.find("b"), values.data()); }) ==
          "f has no tensor b");
    CHECK(message_of<InvalidArgument>([&] { file.read_floats(*larger.find("a"), values.data()); }) ==
          "f: a has 2 elements, and not 6 from the number 0 on");
}

TEST_CASE("a view of numbers with the other sign is refused") {
    const auto with = [](const std::string& attributes) {
        return one(
            pickle::call("_rebuild_tensor_v2", {pickle::storage("FloatStorage", "0", 6), pickle::integer(0),
                                                pickle::numbers({2}), pickle::numbers({1}), "\x89", "N", attributes}));
    };
    CHECK(refused_object(with(pickle::dictionary({{"neg", "\x88"}}))) ==
          "f: a is a view of numbers with the other sign, which is not read; in Python, resolve_neg() of it has them "
          "as they are");
    for (const std::string& attributes : {pickle::dictionary({{"neg", "\x89"}, {"conj", "\x88"}}), "N"s})
        CHECK(floats_in(torch_zip(with(attributes), {six})) == Floats{0, 1});
}
