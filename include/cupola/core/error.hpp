// SPDX-License-Identifier: Apache-2.0
//
// The exceptions that Cupola throws. Each message is one sentence with the names and the numbers of what went wrong.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Base of every exception thrown by Cupola.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A value that the caller passed cannot be used.
class InvalidArgument : public Error {
public:
    using Error::Error;
};

/// A file or a data set is not what it should be; the message names the file.
class DataError : public Error {
public:
    using Error::Error;
};

/// A device, or the library that computes on it, refused a call; the message names the call and its status.
class DeviceError : public Error {
public:
    using Error::Error;
};

/// More memory is needed than there is; the message says how much and for what.
class OutOfMemory : public Error {
public:
    using Error::Error;
};

/// A loss stopped being finite.
class DivergedError : public Error {
public:
    DivergedError(const std::string& what, std::int64_t at_step, int of_replica)
        : Error(what), step(at_step), replica(of_replica) {}
    std::int64_t step;
    int replica;
};

/// The devices' copies of the parameters are no longer equal.
class ReplicasDiffer : public Error {
public:
    ReplicasDiffer(const std::string& what, std::int64_t at_step, int of_device)
        : Error(what), step(at_step), device(of_device) {}
    std::int64_t step;
    int device;
};

namespace impl {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, const char* part) { text += part; }
inline void append(std::string& text, const std::string& part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
inline void append(std::string& text, bool part) { text += part ? "true" : "false"; }

template <class Number>
    requires std::is_arithmetic_v<Number>
void append(std::string& text, Number part) {
    char digits[32];
    std::to_chars_result end{};
    if constexpr (std::floating_point<Number>) {
        if (part != part) return append(text, "nan");  // never "-nan"
        end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(part), std::chars_format::general, 6);
    } else {
        end = std::to_chars(digits, digits + sizeof digits, part);
    }
    text.append(digits, end.ptr);
}

}  // namespace impl

/// One string from text and numbers: `text("batch of ", 128, " images")`.
template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
    std::string result;
    (impl::append(result, parts), ...);
    return result;
}

/// Throws `Exception` with the sentence made of `parts` unless `condition` holds.
template <class Exception = InvalidArgument, class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]] {
        throw Exception(text(parts...));
    }
}

}  // namespace cupola::inline CUPOLA_ABI
