// SPDX-License-Identifier: Apache-2.0
//
// The contract of a device: a type that names its options, its context and its memory.
//
//   Options   the settings of one device object (threads, ordinal); a plain struct.
//   Context   the objects that one worker thread computes with: streams, library handles, the thread team. Not shared.
//             `ordinal()` is the device's number; during the lifetime of the result of `team()`, the calling thread
//             computes with the device's threads. `own_thread(devices)` permanently assigns the calling thread to the
//             device, where `devices` devices compute side by side.
//   Arena     one aligned allocation on the device; freed by its destructor.
//
// A device may have `describe(options, add)`, which calls add(name, text) for each property that the bits of a result
// depend on; `machine_property` has the names of those that describe the machine: where one of them differs, a resumed
// run reports another machine, not other settings. It may have `take_lines(options)`: the lines, for a run to print,
// about what its devices have chosen since the last call.
//
// `Host` is in device/host.hpp. A backend adds its operations in `ops/<backend>/`; docs/contributing.md has the list.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

// Defined in device/host.hpp and device/cuda.hpp; declared here so that a training without them can say which header is
// missing.
struct Host;
struct Cuda;

template <class D>
concept HasDeviceName = requires {
    { D::name } -> std::convertible_to<std::string_view>;
};

template <class D>
concept HasContext = requires(int ordinal, const typename D::Options& options) {
    typename D::Options;
    typename D::Context;
    requires std::constructible_from<typename D::Context, int, const typename D::Options&>;
    requires requires(const typename D::Context& context) {
        { context.ordinal() } -> std::convertible_to<int>;
        context.team();
        context.own_thread(1);
    };
};

template <class D>
concept HasArena = requires(typename D::Arena& arena) {
    requires std::constructible_from<typename D::Arena, std::size_t, std::string_view>;
    { arena.data() } -> std::same_as<std::byte*>;
    { arena.size() } -> std::convertible_to<std::size_t>;
    { D::available_memory() } -> std::convertible_to<std::size_t>;
};

template <class D>
concept HasCopies = requires(typename D::Context& context, std::byte* to, const std::byte* from, std::size_t bytes) {
    { D::copy_from_host(context, to, from, bytes) };
    { D::copy_to_host(context, to, from, bytes) };
};

template <class D>
concept Device = HasDeviceName<D> && HasContext<D> && HasArena<D> && HasCopies<D>;

/// The error message for a type `D` that is not a device; empty if it is one.
template <class D>
[[nodiscard]] consteval CompileTimeMessage device_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!requires { sizeof(D); }) {
        message << short_type_name<D>()
                << " is a device whose header is not included: cupola/host.hpp has Host, and cupola/cuda.hpp Cuda";
        return message;
    }
    if constexpr (Device<D>) return message;
    message << short_type_name<D>() << " is not a device: it lacks ";
    if constexpr (!HasDeviceName<D>) {
        message << "`static constexpr std::string_view name`";
    } else if constexpr (!HasContext<D>) {
        message << "`Options`, or a `Context` that is made from (int ordinal, const Options&) and has `ordinal()`, "
                   "`team()` and `own_thread(int devices)`";
    } else if constexpr (!HasArena<D>) {
        message << "an `Arena` that is made from (bytes, name) with `data()` and `size()`, or `available_memory()`";
    } else {
        message
            << "`copy_from_host` or `copy_to_host` of (Context&, std::byte* to, const std::byte* from, std::size_t)";
    }
    return message;
}

/// The names, in the description of a run, of the properties of its machine: with other values, a run computes the same
/// and its results have other bits.
namespace machine_property {

inline constexpr std::string_view convolution = "convolution", threads_per_device = "threads_per_device",
                                  onednn = "onednn", isa = "isa", gpu = "gpu", cuda = "cuda",
                                  deterministic = "deterministic", plans = "plans", ranks = "ranks";

inline constexpr std::array all{convolution, threads_per_device, onednn, isa, gpu, cuda, deterministic, plans, ranks};

/// Whether the processes of a training may differ in this property: in their GPUs, and in the plans that each has
/// chosen.
[[nodiscard]] constexpr bool is_of_process(std::string_view name) { return name == gpu || name == plans; }

}  // namespace machine_property

/// Every tensor of an arena starts at a multiple of this: a cache line, and a full vector register.
inline constexpr std::size_t alignment = 64;

[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes, std::size_t to = alignment) {
    return (bytes + to - 1) / to * to;
}

/// The scratch memory of an operation on `D`, and each part of it that is passed to a library, starts at a multiple of
/// this: the device's `scratch_alignment` if it has one. The arenas of such a device start at a multiple of it too.
template <class D>
inline constexpr std::size_t scratch_alignment = alignment;
template <class D>
    requires requires { D::scratch_alignment; }
inline constexpr std::size_t scratch_alignment<D> = D::scratch_alignment;

/// "17.1 GB", "4.3 MB", "512 bytes"; powers of ten.
[[nodiscard, gnu::cold]] std::string bytes_text(std::size_t bytes);

inline std::string bytes_text(std::size_t bytes) { return text(ByteCount{bytes}); }

}}  // namespace cupola::CUPOLA_ABI
