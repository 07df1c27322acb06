// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/io/safetensors_writer.hpp
#include "../test.hpp"

#include <sys/resource.h>

#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/safetensors.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <throws_with.hpp>

#include "file_support.hpp"

using namespace io_tests;

namespace {

using Shape = std::vector<std::int64_t>;

SafetensorsFile parse(const std::string& bytes) { return {"f", io_tests::in_memory(bytes)}; }

/// The message about these bytes.
std::string refusal(const std::string& bytes) {
    return message_of<DataError>([&] { (void)parse(bytes); });
}

/// A header of one tensor with these members.
std::string one(const std::string& members) { return "{\"a\":{" + members + "}}"; }
std::string one(const std::string& type, const std::string& shape, const std::string& offsets) {
    return one("\"dtype\":\"" + type + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]");
}

std::string written(const std::string& path) {
    const std::array<float, 6> weights{1, 2, 3, 4, 5, 6};
    const std::vector<cupola::TensorHeader> tensors{
        {"conv.weight", "F32", {2, 3}}, {"none", "F32", {0, 3}}, {"scale", "F32", {}}};
    SafetensorsWriter file(path, tensors, {{"seed", "1"}, {"net\n\"work\"", "a\tb"}});
    file.write(std::as_bytes(std::span(weights)).first(10));
    file.write(std::as_bytes(std::span(weights)).subspan(10));
    file.write(std::as_bytes(std::span(weights).first(1)));
    file.commit();
    return io_tests::read_bytes(path);
}

/// As the safetensors library for Python (0.8) writes it: save_file({"b": torch.ones(3, dtype=torch.bfloat16),
/// "i": torch.arange(2), "s": torch.tensor(3.0)}, metadata={"format": "pt"}).
std::string from_python() {
    std::string header =
        R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"s":{"dtype":"F32","shape":[],"data_offsets":[16,20]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[20,26]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string data(26, '\0');
    data[8] = 1;
    return safetensors(header, data);
}

}  // namespace

TEST_CASE("Tensors that are written as safetensors are read back unchanged") {
    const TemporaryFolder folder;
    const std::string bytes = written(folder.path("x"));
    const SafetensorsFile file(folder.path("x"));
    REQUIRE(file.tensors().size() == 3);
    REQUIRE(file.find("conv.weight") != nullptr);
    CHECK(file.find("conv.weight")->type == "F32");
    CHECK(file.find("conv.weight")->shape() == Shape{2, 3});
    CHECK(file.find("none")->shape() == Shape{0, 3});
    CHECK(file.find("scale")->shape().empty());
    CHECK(file.find("bias") == nullptr);
    std::array<float, 6> values{};
    REQUIRE(file.bytes(*file.find("conv.weight")).size() == sizeof values);
    std::ranges::copy(file.bytes(*file.find("conv.weight")), std::as_writable_bytes(std::span(values)).begin());
    CHECK(values == std::array<float, 6>{1, 2, 3, 4, 5, 6});
    CHECK(file.bytes(*file.find("none")).empty());
    REQUIRE(file.metadata().size() == 3);
    CHECK(file.metadata()[0] == std::pair<std::string_view, std::string_view>("seed", "1"));
    CHECK(file.metadata()[1] == std::pair<std::string_view, std::string_view>("net\n\"work\"", "a\tb"));
    CHECK(file.metadata()[2].first == "crc32c");
    CHECK(file.has_checksum());
    CHECK(folder.names().size() == 1);
}

TEST_CASE("The data of a written file begins at a multiple of 8 bytes") {
    const TemporaryFolder folder;
    for (std::size_t length = 1; length <= 9; ++length) {
        SafetensorsWriter file(folder.path("x"), {}, {{"k", std::string(length, 'v')}});
        file.commit();
        CHECK(std::filesystem::file_size(folder.path("x")) % 8 == 0);
        CHECK(SafetensorsFile(folder.path("x")).metadata()[0].second.size() == length);
    }
}

TEST_CASE("A file of the safetensors library for Python is read, whatever the order of its header") {
    const SafetensorsFile file = parse(from_python());
    REQUIRE(file.tensors().size() == 3);
    CHECK(file.tensors()[0].name == "b");
    CHECK(file.find("b")->type == "BF16");
    CHECK(file.bytes(*file.find("b")).size() == 6);
    CHECK(file.find("i")->shape() == Shape{2});
    CHECK(file.bytes(*file.find("i"))[8] == std::byte{1});
    CHECK_FALSE(file.has_checksum());
}

TEST_CASE("Tensors of every type that safetensors has with whole bytes may stand beside those that are read") {
    // Clang captures no structured binding.
    for (const auto& each : std::initializer_list<std::pair<const char*, int>>{{"BOOL", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2FNUZ", 1},
                                                                               {"F8_E4M3FNUZ", 1},
                                                                               {"F8_E8M0", 1},
                                                                               {"U16", 2},
                                                                               {"C64", 8}}) {
        const char* const type = each.first;
        const int bytes = each.second;
        CAPTURE(type);
        const std::string header =
            text(R"({"a":{"dtype":")", type, R"(","shape":[1],"data_offsets":[0,)", bytes,
                 R"(]},"w":{"dtype":"F32","shape":[],"data_offsets":[)", bytes, ',', bytes + 4, "]}}");
        const SafetensorsFile file = parse(safetensors(header, std::string(static_cast<std::size_t>(bytes) + 4, '\0')));
        CHECK(file.find("a")->type == type);
        CHECK(file.bytes(*file.find("w")).size() == 4);
    }
}

TEST_CASE("A safetensors file that is truncated anywhere is rejected with an error") {
    const TemporaryFolder folder;
    for (const std::string& whole : {written(folder.path("x")), from_python()}) {
        for (std::size_t length = 0; length < whole.size(); ++length) {
            const std::string said = refusal(whole.substr(0, length));
            CAPTURE(length);
            CHECK(said.starts_with("f is "));
            CHECK(said.find('\n') == std::string::npos);
        }
        CHECK(contains(refusal(whole.substr(0, whole.size() - 1)), "is truncated: 1 of the "));
        CHECK(contains(refusal(whole + "x"), "is damaged: it has 1 bytes after its last tensor"));
    }
}

TEST_CASE("A wrong bit anywhere in a safetensors file with a checksum is found") {
    const TemporaryFolder folder;
    const std::string whole = written(folder.path("x"));
    for (std::size_t i = 0; i < whole.size(); ++i) {
        for (const int bit : {0, 5, 7}) {
            std::string damaged = whole;
            damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
            CAPTURE(i);
            // Where the checksum's name is hit, there is none: io/checkpoint.hpp asks for one.
            bool found = true;
            try {
                found = !parse(damaged).has_checksum();
            } catch (const DataError&) {
            }
            CHECK(found);
        }
    }
    std::string damaged = whole;
    damaged.back() ^= 1;
    CHECK(contains(refusal(damaged), "f is damaged: its checksum should be "));
}

TEST_CASE("A path that does not exist, or is not a file, is an error") {
    const TemporaryFolder folder;
    CHECK(message_of<DataError>([&] { SafetensorsFile file(folder.path("x")); }) ==
          folder.path("x") + " does not exist");
    CHECK(message_of<DataError>([&] { SafetensorsFile file(folder.path()); }) ==
          folder.path() + " is not a regular file");
    CHECK(message_of<DataError>([&] { SafetensorsFile file("/dev/null"); }) == "/dev/null is not a regular file");
    CHECK(refusal("") ==
          "f is truncated or is not a safetensors file: it has 0 bytes, and the length of the header takes 8");
    CHECK(refusal("\x89PNG 1234 bytes of something else") ==
          "f is truncated or is not a safetensors file: its header has 3689065059474886793 bytes, and 25 follow");
}

TEST_CASE("Each defect of a safetensors header is an error") {
    const std::string good = one("F32", "2", "0,8");
    const std::string data(8, '\0');
    CHECK(parse(safetensors(good, data)).tensors().size() == 1);
    CHECK(parse(safetensors("{}")).tensors().empty());
    CHECK(parse(safetensors("{\"__metadata__\":{}}")).metadata().empty());

    const std::string at = " is damaged or is not a safetensors file: at byte ";
    CHECK(refusal(safetensors("")) == "f" + at + "0 of its header '{' is missing");
    CHECK(refusal(safetensors("{} x")) == "f" + at + "3 of its header text follows its end");
    CHECK(contains(refusal(safetensors("{},{}")), "text follows its end"));
    CHECK(contains(refusal(safetensors("{")), "'\"' is missing"));
    CHECK(contains(refusal(safetensors("{\"a\"")), "':' is missing"));
    CHECK(contains(refusal(safetensors("{\"a\":1}")), "'{' is missing"));
    CHECK(contains(refusal(safetensors("{\"a\":{}}")), "'\"' is missing"));
    CHECK(contains(refusal(safetensors("{\"__metadata__\":{},\"__metadata__\":{}}")), "__metadata__ appears twice"));
    CHECK(contains(refusal(safetensors("{\"__metadata__\":{\"a\":1}}")), "'\"' is missing"));
    CHECK(contains(refusal(safetensors("{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"}}")),
                   "has two metadata entries named a"));
    CHECK(contains(refusal(safetensors(one("F33", "2", "0,8"), data)), "a tensor has the unknown type 'F33'"));
    CHECK(contains(refusal(safetensors(one("F32", "-2", "0,8"), data)), "a natural number is missing"));
    CHECK(contains(refusal(safetensors(one("F32", "2.0", "0,8"), data)), "']' is missing"));
    CHECK(contains(refusal(safetensors(one("F32", "2", "0,8,9"), data)), "']' is missing"));
    CHECK(contains(refusal(safetensors(one("F32", "2", "8"), data)), "',' is missing"));
    CHECK(contains(refusal(safetensors(one("F32", "4294967296,4294967296", "0,8"), data)),
                   "a tensor's size is too large"));
    CHECK(contains(refusal(safetensors(one("F32", "9223372036854775807", "0,8"), data)),
                   "shape does not match its data_offsets"));
    CHECK(contains(refusal(safetensors(one("F32", "3", "0,8"), data)), "shape does not match its data_offsets"));
    CHECK(contains(refusal(safetensors(one("F32", "2", "8,0"), data)), "shape does not match its data_offsets"));
    CHECK(contains(refusal(safetensors(one("\"dtype\":\"F32\",\"shape\":[2]"), data)),
                   "lacks its dtype, shape or data_offsets"));
    CHECK(contains(refusal(safetensors(one("\"dtype\":\"F32\",\"dtype\":\"F32\""), data)), "'dtype' appears twice"));
    CHECK(contains(refusal(safetensors(one("\"size\":2"), data)), "a tensor has 'size', which is not"));
    CHECK(contains(refusal(safetensors(one(
                                           "U8",
                                           "1" +
                                               []() {
                                                   std::string s;
                                                   for (int i = 0; i < 64; ++i) s += ",1";
                                                   return s;
                                               }(),
                                           "0,1"),
                                       "x")),
                   "more than 64 extents"));
}

TEST_CASE("Every byte of the data lies in exactly one tensor") {
    const auto two = [](const std::string& name, const std::string& first, const std::string& second,
                        std::size_t bytes) {
        const auto tensor = [](const std::string& offsets) {
            return ":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" + offsets + "]}";
        };
        return safetensors("{\"a\"" + tensor(first) + ",\"" + name + "\"" + tensor(second) + "}",
                           std::string(bytes, 'x'));
    };
    CHECK(parse(two("b", "4,8", "0,4", 8)).tensors().size() == 2);
    CHECK(refusal(two("b", "0,4", "3,7", 8)) == "f is damaged: two tensors share byte 3 of its data");
    CHECK(refusal(two("b", "0,4", "0,4", 4)) == "f is damaged: two tensors share byte 0 of its data");
    CHECK(refusal(two("b", "0,4", "5,9", 9)) == "f is damaged: no tensor has byte 4 of its data");
    CHECK(refusal(two("b", "0,4", "4,8", 9)) == "f is damaged: it has 1 bytes after its last tensor");
    CHECK(refusal(two("b", "0,4", "4,8", 7)) == "f is truncated: 1 of the 8 bytes of its tensors are missing");
    CHECK(refusal(two("a", "0,4", "4,8", 8)) == "f is damaged: it has two tensors named a");
    CHECK(refusal(two("\\u0061", "0,4", "4,8", 8)) == "f is damaged: it has two tensors named a");
}

TEST_CASE("The reader allocates less than a mebibyte beside the file itself, for any safetensors file" *
          doctest::skip(sanitized)) {
    std::string many_tensors = "{", many_texts = "{\"__metadata__\":{", many_open;
    for (int i = 0; i < 20'000; ++i) {
        const std::string name = std::to_string(i);
        many_tensors += "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
        many_texts += "\"" + name + "\":\"\",";
        many_open += "{[";
    }
    std::string many_extents = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0";
    for (int i = 0; i < 500'000; ++i) many_extents += ",0";
    const std::string long_name = "{\"" + std::string(3'000'000, 'x') + "\":{}}";
    const std::string long_number = one("U8", std::string(3'000'000, '1'), "0,0");
    const std::string spaces = std::string(3'000'000, ' ') + "{}";
    // Within the limits, and so read to the end.
    std::string as_many_as_may_be = "{\"__metadata__\":{\"k\":\"v\"";
    for (int i = 0; i < 999; ++i) as_many_as_may_be += ",\"" + std::to_string(i) + "\":\"\"";
    as_many_as_may_be += "}";
    for (int i = 0; i < 14'000; ++i) {
        as_many_as_may_be += ",\"" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    }
    as_many_as_may_be += "}";
    const TemporaryFolder folder;
    for (const std::string& header :
         {many_tensors, many_texts, many_open, many_extents, long_name, long_number, spaces, as_many_as_may_be}) {
        const std::string bytes = safetensors(header);
        io_tests::write_bytes(folder.path("x"), bytes);
        const std::string path = folder.path("x");
        bool read = false;
        const std::size_t peak = io_tests::peak_bytes([&] {
            try {
                const SafetensorsFile file(path);
                read = true;
            } catch (const DataError&) {
            }
        });
        CAPTURE(header.substr(0, 60));
        CHECK(peak >= bytes.size());
        CHECK(peak <= bytes.size() + (1U << 20));
        CHECK(read == (header == spaces || header == as_many_as_may_be));
    }
    CHECK(contains(refusal(safetensors(many_tensors)), "there are more than 14000 tensors"));
    CHECK(contains(refusal(safetensors(many_texts)), "__metadata__ has more than 1000 entries"));
}

TEST_CASE("The tensors of a file that is opened stay in it, and are read in parts") {
    const TemporaryFolder folder;
    const std::string path = folder.path("x");
    const std::uint64_t count = std::uint64_t{1} << 28;
    io_tests::write_bytes(path, safetensors(one("F32", std::to_string(count), "0," + std::to_string(4 * count))));
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + 4 * count);
    std::array<float, 3> values{1, 1, 1};
    const std::size_t peak = io_tests::peak_bytes([&] {
        const std::unique_ptr<TensorFile> file = open_tensor_file(path);
        file->read_floats(*file->find("a"), count - 3, values);
    });
    CHECK(values == std::array<float, 3>{});
    CHECK(peak < 1U << 20);

    // A checksum over more than one piece, and elements that are converted.
    std::vector<std::uint16_t> halves(100'000);
    std::iota(halves.begin(), halves.end(), std::uint16_t{0});
    SafetensorsWriter writer(path, std::vector<TensorHeader>{{"a", "U8", {3}}, {"b", "BF16", {100'000}}}, {});
    writer.write(std::as_bytes(std::span("abc", 3)));
    writer.write(std::as_bytes(std::span(halves)));
    writer.commit();
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    CHECK(file->has_checksum());
    std::vector<float> all(halves.size() - 7);
    file->read_floats(*file->find("b"), 5, all);
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const float wanted = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i + 5]) << 16);
        same = same && std::bit_cast<std::uint32_t>(all[i]) == std::bit_cast<std::uint32_t>(wanted);
    }
    CHECK(same);
    CHECK(message_of<InvalidArgument>([&] { file->read_floats(*file->find("b"), 8, all); }) ==
          path + ": b has 100000 elements, and not 99993 from the number 8 on");
    std::string bytes = io_tests::read_bytes(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    io_tests::write_bytes(path, bytes);
    CHECK(contains(message_of<DataError>([&] { (void)open_tensor_file(path); }), "its checksum should be "));
    io_tests::write_bytes(path, "{\"weight\": 1}");
    CHECK(contains(message_of<DataError>([&] { (void)open_tensor_file(path); }), "not in the safetensors format"));
}

// A sanitizer takes terabytes of addresses for itself, and ends the program where malloc fails.
TEST_CASE("A safetensors file that is larger than the memory is an error" * doctest::skip(sanitized)) {
    const TemporaryFolder folder;
    io_tests::write_bytes(folder.path("x"), "");
    std::filesystem::resize_file(folder.path("x"), std::uintmax_t{1} << 33);
    const std::string said = io_tests::in_child([&] {
        const rlimit limit{std::size_t{1} << 32, std::size_t{1} << 32};
        setrlimit(RLIMIT_AS, &limit);
        return message_of<cupola::OutOfMemory>([&] { SafetensorsFile file(folder.path("x")); });
    });
    CHECK(said == folder.path("x") + " has 8589934592 bytes, more than the memory that could be allocated");
}

TEST_CASE("A writer of safetensors accepts neither more nor fewer bytes than its tensors have") {
    const TemporaryFolder folder;
    const std::vector<cupola::TensorHeader> tensors{{"a", "U8", {4}}};
    const std::array<std::byte, 5> bytes{};
    SafetensorsWriter file(folder.path("x"), tensors, {});
    CHECK(contains(message_of<InvalidArgument>([&] { file.write(bytes); }),
                   "was given more bytes than its tensors have"));
    file.write(std::span(bytes).first(3));
    CHECK(contains(message_of<InvalidArgument>([&] { file.commit(); }), "lacks 1 bytes"));
    file.write(std::span(bytes).first(1));
    file.commit();
    CHECK(SafetensorsFile(folder.path("x")).tensors().size() == 1);
}

TEST_CASE("A writer of safetensors rejects files that no reader would accept") {
    const TemporaryFolder folder;
    const auto refused = [&](std::vector<cupola::TensorHeader> tensors, const SafetensorsWriter::Metadata& metadata) {
        return message_of<InvalidArgument>([&] { SafetensorsWriter(folder.path("x"), tensors, metadata); });
    };
    CHECK(contains(refused({{"a", "F32", {1}}, {"a", "F32", {1}}}, {}), "cannot have two tensors named a"));
    CHECK(contains(refused({{"__metadata__", "F32", {1}}}, {}), "cannot have two tensors named __metadata__"));
    CHECK(contains(refused({{"a", "F31", {1}}}, {}), "the tensor a has the unknown type F31"));
    CHECK(contains(refused({{"a", "F32", {-1}}}, {}), "the tensor a has an extent of -1"));
    CHECK(contains(refused({{"a\xFF", "F32", {1}}}, {}), "not UTF-8"));
    CHECK(contains(refused({}, {{"a", "1"}, {"a", "2"}}), "cannot have two metadata entries named a"));
    CHECK(contains(refused({}, {{"crc32c", "1"}}), "cannot have two metadata entries named crc32c"));
    CHECK(contains(refused({}, {{"a", "\x80"}}), "not UTF-8"));
    CHECK(contains(refused({}, SafetensorsWriter::Metadata(1000)), "cannot have 1000 metadata entries; at most 999"));
    CHECK(contains(refused(std::vector<cupola::TensorHeader>(14'001), {}), "cannot have 14001 tensors; at most 14000"));
    CHECK(folder.names().empty());
}

TEST_CASE("A file of another format is named by its first bytes, and the message says what to do") {
    const std::string rest(200, 'x');
    CHECK(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 44990\n") ==
          "f is a Git LFS pointer and not the file itself, which `git lfs pull` fetches");
    const std::string page = "f is an HTML page and not the file itself: the download has returned a page";
    CHECK(refusal("<!DOCTYPE html>\n<html lang=\"en\">" + rest) == page);
    CHECK(refusal("\xEF\xBB\xBF\r\n <HTML><head>" + rest) == page);
    CHECK(
        refusal("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>").starts_with("f is an XML document"));
    const std::string of_pytorch =
        "such as those of torch.save, and not in the safetensors format: in Python, "
        "safetensors.torch.save_file(torch.load(path, weights_only=True), new_path) writes its tensors so";
    using namespace std::string_literals;
    CHECK(refusal("PK\x03\x04\0\0\x08\x08\0\0"s + rest) == "f is a zip archive, " + of_pytorch);
    // The first eight bytes as a length: a number that the file may have.
    CHECK(refusal("PK\x03\x04\0\0\0\0"s + std::string(0x0403'4B50, 'x')) == "f is a zip archive, " + of_pytorch);
    CHECK(refusal("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."s + rest) == "f is a pickle of Python, " + of_pytorch);
    CHECK(refusal("GGUF\x03\0\0\0\x23\x01\0\0"s + rest) == "f is a GGUF file, and not in the safetensors format");
    CHECK(refusal("\x89HDF\r\n\x1a\n"s + rest).starts_with("f is an HDF5 file, as Keras writes them"));
    CHECK(refusal("\x93NUMPY\x01\0v\0"s + rest) == "f is a NumPy file, and not in the safetensors format");
    CHECK(refusal("\x1F\x8B\x08\0\0\0\0\0"s + rest) == "f is packed by gzip, which `gzip -d` unpacks");
    CHECK(refusal("{\n  \"weight_map\": {\n    \"lm_head.weight\": \"model-00002-of-00002.safetensors\"\n  }\n}") ==
          "f is an index of several files, which open_tensor_file reads as one");
    CHECK(refusal("{\"hidden_size\": 768}") == "f is a JSON text, and not in the safetensors format");
    // A header of 640 bytes begins as a pickle does, and is one.
    std::string header = "{}";
    header.resize(0x280, ' ');
    CHECK(parse(safetensors(header, "")).tensors().empty());
}
