// SPDX-License-Identifier: Apache-2.0
//
// Writes and reads the order log of an asynchronous training (parallel/kinds/order.hpp) so that another run replays it:
//
//   write_order_log("run1/order.safetensors", *log);
//   ... .averaging = {.order = Order::replay(read_order_log("run1/order.safetensors"))}
//
// It is a safetensors file: docs/reference/file-formats.md. A run that continues from a checkpoint continues the log
// too, if that was written before the checkpoint, after a call that waits for all steps, such as state().
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/safetensors.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <cupola/parallel/kinds/order.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The text of a key, which the file must have.
[[nodiscard, gnu::cold]] inline std::string_view order_log_text(const SafetensorsFile& file, std::string_view key) {
    for (const auto& [each, value] : file.metadata()) {
        if (each == key) return value;
    }
    throw DataError(text(file.path(), " is not an order log: it has no ", key));
}

template <class Number>
[[nodiscard, gnu::cold]] Number order_log_number(const SafetensorsFile& file, std::string_view key) {
    const std::string_view digits = order_log_text(file, key);
    Number number{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    require<DataError>(error == std::errc{} && end == digits.data() + digits.size(), file.path(),
                       " is not an order log: its ", key, " is ", shown(digits));
    return number;
}

[[nodiscard, gnu::cold]] inline std::vector<std::uint16_t> order_log_list(const SafetensorsFile& file,
                                                                          std::string_view name) {
    const SafeTensor* const tensor = file.find(name);
    require<DataError>(tensor != nullptr && tensor->type == "U16" && tensor->shape().size() == 1, file.path(),
                       " is not an order log: it has no list ", name, " of type U16");
    const std::span<const std::byte> bytes = file.bytes(*tensor);
    std::vector<std::uint16_t> list(bytes.size() / sizeof(std::uint16_t));
    if (!list.empty()) std::memcpy(list.data(), bytes.data(), list.size() * sizeof(std::uint16_t));
    return list;
}

}  // namespace impl

/// Writes the file completely or not at all. Throws DataError if it cannot be written.
[[gnu::cold]] inline void write_order_log(const std::string& path, const OrderLog& log) {
    const auto size = static_cast<std::int64_t>(log.claims.size());
    const TensorHeader lists[] = {{"claims", "U16", {size}},
                                  {"turns", "U16", {static_cast<std::int64_t>(log.turns.size())}}};
    SafetensorsWriter file(path, lists,
                           {{"cupola.order_log", "1"},
                            {"cupola.replicas", text(log.replicas)},
                            {"cupola.devices", text(log.devices)},
                            {"cupola.seed", text(log.seed)},
                            {"cupola.first_step", text(log.first_step)},
                            {"cupola.rule", log.rule}});
    file.write(std::as_bytes(std::span(log.claims)));
    file.write(std::as_bytes(std::span(log.turns)));
    file.commit();
}

/// Throws DataError for a file that cannot be read, that is not an order log, or that has one that no run can have. A
/// training that is given the log of another one throws a DataError that names the file.
[[nodiscard, gnu::cold]] inline OrderLog read_order_log(const std::string& path) {
    const SafetensorsFile file(path);
    const std::string_view format = impl::order_log_text(file, "cupola.order_log");
    require<DataError>(format == "1", path, " is an order log of version ", impl::shown(format),
                       ", and this program reads version 1");
    OrderLog log{.replicas = impl::order_log_number<int>(file, "cupola.replicas"),
                 .devices = impl::order_log_number<int>(file, "cupola.devices"),
                 .seed = impl::order_log_number<std::uint64_t>(file, "cupola.seed"),
                 .rule = std::string(impl::order_log_text(file, "cupola.rule")),
                 .first_step = impl::order_log_number<std::int64_t>(file, "cupola.first_step"),
                 .claims = impl::order_log_list(file, "claims"),
                 .turns = impl::order_log_list(file, "turns"),
                 .file = path};
    try {
        require_valid(log);
    } catch (const DataError& error) {
        throw DataError(text(path, ": ", error.what()));
    }
    return log;
}

}}  // namespace cupola::CUPOLA_ABI
