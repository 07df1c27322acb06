// SPDX-License-Identifier: Apache-2.0
//
// Files of torch.save for the tests, byte by byte: pickles, zip archives and the format before torch 1.6.
#pragma once

#include <cstdint>

#include "../standard.hpp"

namespace io_tests {

/// Instructions of a pickle, each as it leaves one value on the stack.
namespace pickle {

inline std::string bytes_of(std::uint64_t number, std::size_t count) {
    return {reinterpret_cast<const char*>(&number), count};
}
inline std::string text(const std::string& value) { return "X" + bytes_of(value.size(), 4) + value; }
inline std::string integer(std::int64_t value) { return "\x8A\x08" + bytes_of(static_cast<std::uint64_t>(value), 8); }
inline std::string global(const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<std::string>& values) {
    std::string result = "(";
    for (const std::string& value : values) result += value;
    return result + "t";
}
inline std::string numbers(const std::vector<std::int64_t>& values) {
    std::vector<std::string> each;
    for (const std::int64_t value : values) each.push_back(integer(value));
    return tuple(each);
}
inline std::string dictionary(const std::vector<std::pair<std::string, std::string>>& values) {
    std::string result = global("collections", "OrderedDict") + ")R(";
    for (const auto& [key, value] : values) result += text(key) + value;
    return result + "u";
}
inline std::string storage(const std::string& type, const std::string& key, std::int64_t count) {
    return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(count)}) + "Q";
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
    return global("torch._utils", function) + tuple(arguments) + "R";
}
struct Tensor {
    std::vector<std::int64_t> extents, strides;
    std::string type = "FloatStorage", key = "0";
    std::int64_t count = 6, offset = 0;
};
inline std::string tensor(const Tensor& t) {
    return call("_rebuild_tensor_v2", {storage(t.type, t.key, t.count), integer(t.offset), numbers(t.extents),
                                       numbers(t.strides), "\x89", global("collections", "OrderedDict") + ")R"});
}
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickle

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

struct ZipOptions {
    std::uint16_t method = 0, flags = 0;
    /// Sizes and offsets in fields of ZIP64 alone.
    bool zip64 = false;
};

/// As torch.save writes an archive: the local headers have no sizes.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries,
                       const ZipOptions& options = {}) {
    using pickle::bytes_of;
    std::string data, directory;
    for (const auto& [name, content] : entries) {
        const std::uint64_t offset = data.size(), size = content.size();
        data += "PK\x03\x04" + std::string(22, '\0') + bytes_of(name.size(), 2) + bytes_of(4, 2) + name + "FB" +
                std::string(2, '\0') + content;
        const std::string large =
            bytes_of(1, 2) + bytes_of(24, 2) + bytes_of(size, 8) + bytes_of(size, 8) + bytes_of(offset, 8);
        const auto number = [&](std::uint64_t value) { return bytes_of(options.zip64 ? 0xFFFFFFFF : value, 4); };
        directory += "PK\x01\x02" + bytes_of(0, 4) + bytes_of(options.flags, 2) + bytes_of(options.method, 2) +
                     bytes_of(0, 8) + number(size) + number(size) + bytes_of(name.size(), 2) +
                     bytes_of(options.zip64 ? large.size() : 0, 2) + bytes_of(0, 8) + bytes_of(0, 2) + number(offset) +
                     name + (options.zip64 ? large : "");
    }
    const std::uint64_t place = data.size(), size = directory.size(), count = entries.size();
    std::string end;
    if (options.zip64)
        end = "PK\x06\x06" + bytes_of(44, 8) + bytes_of(0, 4) + bytes_of(0, 8) + bytes_of(count, 8) +
              bytes_of(count, 8) + bytes_of(size, 8) + bytes_of(place, 8) + "PK\x06\x07" + bytes_of(0, 4) +
              bytes_of(place + size, 8) + bytes_of(1, 4);
    const auto number = [&](std::uint64_t value) { return bytes_of(options.zip64 ? 0xFFFFFFFF : value, 4); };
    return data + directory + end + "PK\x05\x06" + bytes_of(0, 4) + bytes_of(count, 2) + bytes_of(count, 2) +
           number(size) + number(place) + bytes_of(0, 2);
}

/// A file of torch.save of this object, with the storages "0", "1", ...
inline std::string torch_zip(const std::string& object, const std::vector<std::string>& storages,
                             const ZipOptions& options = {}) {
    std::vector<std::pair<std::string, std::string>> entries{{"w/data.pkl", pickle::whole(object)},
                                                             {"w/byteorder", "little"}};
    for (std::size_t i = 0; i < storages.size(); ++i) entries.emplace_back("w/data/" + std::to_string(i), storages[i]);
    return zip(entries, options);
}

/// The same in the format before torch 1.6; storages of 4 bytes per element.
inline std::string torch_legacy(const std::string& object, const std::vector<std::string>& storages,
                                const std::string& little = "\x88") {
    using namespace std::string_literals;
    std::string keys = "](", data;
    for (std::size_t i = 0; i < storages.size(); ++i) {
        keys += pickle::text(std::to_string(i));
        data += pickle::bytes_of(storages[i].size() / 4, 8) + storages[i];
    }
    return pickle::whole("\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19"s) + pickle::whole(pickle::integer(1001)) +
           pickle::whole("}" + pickle::text("little_endian") + little + "s") + pickle::whole(object) +
           pickle::whole(keys + "e") + data;
}

}  // namespace io_tests
