// SPDX-License-Identifier: Apache-2.0
//
// The exceptions that Cupola throws. Each message has the names and the numbers of what went wrong.
//
// The classes have the same names for every instruction set, and default visibility, so that a file or a shared library
// catches what another one throws that was compiled with other flags. The linker keeps one copy of their members, from
// any of the files, so the members are compiled for the x86-64 baseline; a test disassembles them.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include <cupola/core/abi.hpp>
#include <cupola/core/finite.hpp>

#define CUPOLA_ANY_X86_64 [[gnu::target("no-sse3")]]

namespace cupola { inline namespace CUPOLA_VERSION_ABI {

/// Base of every exception thrown by Cupola.
class [[gnu::visibility("default")]] Error : public std::runtime_error {
public:
    CUPOLA_ANY_X86_64 explicit Error(const std::string& what) : std::runtime_error(what) {}
    CUPOLA_ANY_X86_64 Error(const Error&) = default;
    CUPOLA_ANY_X86_64 Error& operator=(const Error&) = default;
    CUPOLA_ANY_X86_64 ~Error() override = default;
};

/// A value that the caller passed cannot be used.
class [[gnu::visibility("default")]] InvalidArgument : public Error {
public:
    CUPOLA_ANY_X86_64 explicit InvalidArgument(const std::string& what) : Error(what) {}
    CUPOLA_ANY_X86_64 InvalidArgument(const InvalidArgument&) = default;
    CUPOLA_ANY_X86_64 InvalidArgument& operator=(const InvalidArgument&) = default;
    CUPOLA_ANY_X86_64 ~InvalidArgument() override = default;
};

/// A file or a data set is invalid; the message names the file.
class [[gnu::visibility("default")]] DataError : public Error {
public:
    CUPOLA_ANY_X86_64 explicit DataError(const std::string& what) : Error(what) {}
    CUPOLA_ANY_X86_64 DataError(const DataError&) = default;
    CUPOLA_ANY_X86_64 DataError& operator=(const DataError&) = default;
    CUPOLA_ANY_X86_64 ~DataError() override = default;
};

/// A checkpoint does not exist, or the system does not allow reading it: `code` is the errno.
class [[gnu::visibility("default")]] UnreadableFile : public DataError {
public:
    CUPOLA_ANY_X86_64 UnreadableFile(const std::string& what, int error) : DataError(what), code(error) {}
    CUPOLA_ANY_X86_64 UnreadableFile(const UnreadableFile&) = default;
    CUPOLA_ANY_X86_64 UnreadableFile& operator=(const UnreadableFile&) = default;
    CUPOLA_ANY_X86_64 ~UnreadableFile() override = default;
    int code;
};

/// A device, or the library that computes on it, rejected a call; the message names the call and its status.
class [[gnu::visibility("default")]] DeviceError : public Error {
public:
    CUPOLA_ANY_X86_64 explicit DeviceError(const std::string& what) : Error(what) {}
    CUPOLA_ANY_X86_64 DeviceError(const DeviceError&) = default;
    CUPOLA_ANY_X86_64 DeviceError& operator=(const DeviceError&) = default;
    CUPOLA_ANY_X86_64 ~DeviceError() override = default;
};

/// A device has failed, and every later call for it fails too: this process cannot use it again.
class [[gnu::visibility("default")]] DeviceLost : public DeviceError {
public:
    CUPOLA_ANY_X86_64 explicit DeviceLost(const std::string& what) : DeviceError(what) {}
    CUPOLA_ANY_X86_64 DeviceLost(const DeviceLost&) = default;
    CUPOLA_ANY_X86_64 DeviceLost& operator=(const DeviceLost&) = default;
    CUPOLA_ANY_X86_64 ~DeviceLost() override = default;
};

/// More memory is needed than is available; the message says how much and for what.
class [[gnu::visibility("default")]] OutOfMemory : public Error {
public:
    CUPOLA_ANY_X86_64 explicit OutOfMemory(const std::string& what) : Error(what) {}
    CUPOLA_ANY_X86_64 OutOfMemory(const OutOfMemory&) = default;
    CUPOLA_ANY_X86_64 OutOfMemory& operator=(const OutOfMemory&) = default;
    CUPOLA_ANY_X86_64 ~OutOfMemory() override = default;
};

/// A loss, a gradient or a parameter is not finite.
class [[gnu::visibility("default")]] DivergedError : public Error {
public:
    CUPOLA_ANY_X86_64 DivergedError(const std::string& what, std::int64_t at_step, int of_replica)
        : Error(what), step(at_step), replica(of_replica) {}
    CUPOLA_ANY_X86_64 DivergedError(const DivergedError&) = default;
    CUPOLA_ANY_X86_64 DivergedError& operator=(const DivergedError&) = default;
    CUPOLA_ANY_X86_64 ~DivergedError() override = default;
    std::int64_t step;
    int replica;
};

/// The devices' copies of the parameters are no longer equal.
class [[gnu::visibility("default")]] ReplicasDiffer : public Error {
public:
    CUPOLA_ANY_X86_64 ReplicasDiffer(const std::string& what, std::int64_t at_step, int of_device)
        : Error(what), step(at_step), device(of_device) {}
    CUPOLA_ANY_X86_64 ReplicasDiffer(const ReplicasDiffer&) = default;
    CUPOLA_ANY_X86_64 ReplicasDiffer& operator=(const ReplicasDiffer&) = default;
    CUPOLA_ANY_X86_64 ~ReplicasDiffer() override = default;
    std::int64_t step;
    int device;
};

/// Processes of the training are lost, and the remaining ones can continue without them.
class [[gnu::visibility("default")]] ProcessLost : public DeviceError {
public:
    /// `waits_since` is when this process began to wait for the others, by monotonic_seconds.
    CUPOLA_ANY_X86_64 ProcessLost(const std::string& what, double waits_since)
        : DeviceError(what), since(waits_since) {}
    CUPOLA_ANY_X86_64 ProcessLost(const ProcessLost&) = default;
    CUPOLA_ANY_X86_64 ProcessLost& operator=(const ProcessLost&) = default;
    CUPOLA_ANY_X86_64 ~ProcessLost() override = default;
    double since;
};

}}  // namespace cupola::CUPOLA_VERSION_ABI

#undef CUPOLA_ANY_X86_64

namespace cupola { inline namespace CUPOLA_ABI {

/// A number of bytes, written in a text as "17.1 GB", "4.3 MB" or "512 bytes"; powers of ten.
struct ByteCount {
    std::size_t count = 0;
};

/// A number with `places` digits after the point, 0 to 60, as printf's "%.*f" writes it in the C locale, whatever
/// locale the program has set. (A number alone has six significant digits, as "%g".)
struct Decimals {
    double value = 0;
    int places = 0;
};

/// A number with at most `digits` significant digits, 1 to 17, as "%.*g" writes it in the C locale.
struct SignificantDigits {
    double value = 0;
    int digits = 0;
};

namespace impl {

/// A part of a message: text or a number. One type for all, so that one function builds every message instead of one
/// per combination of types.
class TextPart {
public:
    TextPart(const char* text) : kind_(Kind::text), text_(text) {}                          // NOLINT: parts convert
    TextPart(std::string_view text) : kind_(Kind::text), text_(text) {}                     // NOLINT
    TextPart(const std::string& text) : kind_(Kind::text), text_(text) {}                   // NOLINT
    TextPart(bool value) : kind_(Kind::text), text_(value ? "true" : "false") {}            // NOLINT
    TextPart(char value) : kind_(Kind::character), character_(value) {}                     // NOLINT
    TextPart(std::signed_integral auto value) : kind_(Kind::integer), integer_(value) {}    // NOLINT
    TextPart(std::unsigned_integral auto value) : kind_(Kind::natural), natural_(value) {}  // NOLINT
    TextPart(std::floating_point auto value) : kind_(Kind::real), real_(static_cast<double>(value)) {}  // NOLINT

    TextPart(ByteCount value) : kind_(Kind::bytes), natural_(value.count) {}                                // NOLINT
    TextPart(Decimals number) : kind_(Kind::decimals), digits_(number.places), real_(number.value) {}       // NOLINT
    TextPart(SignificantDigits number) : kind_(Kind::real), digits_(number.digits), real_(number.value) {}  // NOLINT

    void append_to(std::string& result) const;

private:
    enum class Kind : std::uint8_t { text, character, integer, natural, real, decimals, bytes };
    void append_real(std::string& result) const;
    static void append_bytes(std::string& result, std::uint64_t bytes);
    Kind kind_;
    int digits_ = 6;
    union {
        std::string_view text_;
        char character_;
        std::int64_t integer_;
        std::uint64_t natural_;
        double real_;
    };
};

[[nodiscard, gnu::cold]] std::string join(std::initializer_list<TextPart> parts);

template <class Exception>
[[noreturn, gnu::cold, gnu::noinline]] void throw_joined(std::initializer_list<TextPart> parts) {
    throw Exception(join(parts));
}

}  // namespace impl

/// One string from text and numbers: `text("batch of ", 128, " images")`.
template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
    return impl::join({impl::TextPart(parts)...});
}

/// The fewest digits that represent the number exactly, for texts that a resumed run compares; text() writes six.
[[nodiscard]] std::string exact_text(double value);

/// Throws `Exception` with the message made of `parts` unless `condition` holds.
template <class Exception = InvalidArgument, class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]] {
        impl::throw_joined<Exception>({impl::TextPart(parts)...});
    }
}

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/core/error.ipp>
#endif
