// SPDX-License-Identifier: Apache-2.0
//
// The Device concept: what satisfies it, and the diagnostic for each missing part. And the text and rounding of sizes.
#include "../test.hpp"

#include <cupola/device/device.hpp>

namespace {

struct Buffer {
    Buffer(std::size_t, std::string_view) {}
    std::byte* data();
    std::size_t size() const;
};
struct Settings {};
struct Handles {
    Handles(int, const Settings&) {}
    int ordinal() const;
    int team() const;
    void own_thread(int devices) const;
};

struct Complete {
    static constexpr std::string_view name = "Complete";
    using Options = Settings;
    using Context = Handles;
    using Arena = Buffer;
    static std::size_t available_memory();
    static void copy_from_host(Handles&, std::byte*, const std::byte*, std::size_t);
    static void copy_to_host(Handles&, std::byte*, const std::byte*, std::size_t);
};
static_assert(Device<Complete>);

struct WithoutName {
    using Options = Settings;
    using Context = Handles;
    using Arena = Buffer;
    static std::size_t available_memory();
    static void copy_from_host(Handles&, std::byte*, const std::byte*, std::size_t);
    static void copy_to_host(Handles&, std::byte*, const std::byte*, std::size_t);
};
static_assert(!HasDeviceName<WithoutName> && HasContext<WithoutName> && HasArena<WithoutName> &&
              HasCopies<WithoutName>);
static_assert(!Device<WithoutName>);

struct WithoutOptions : Complete {
    struct Options {};  // not what the context is made from
};
static_assert(!HasContext<WithoutOptions> && HasArena<WithoutOptions> && !Device<WithoutOptions>);

struct ContextWithoutTeam : Complete {
    struct Context {
        Context(int, const Settings&) {}
        int ordinal() const;
        void own_thread(int devices) const;
    };
};
static_assert(!HasContext<ContextWithoutTeam> && !Device<ContextWithoutTeam>);

struct UnnamedArena : Complete {
    struct Arena {
        explicit Arena(std::size_t) {}
        std::byte* data();
        std::size_t size() const;
    };
};
static_assert(!HasArena<UnnamedArena> && HasContext<UnnamedArena> && !Device<UnnamedArena>);

struct ArenaOfFloats : Complete {
    struct Arena {
        Arena(std::size_t, std::string_view) {}
        float* data();
        std::size_t size() const;
    };
};
static_assert(!HasArena<ArenaOfFloats> && !Device<ArenaOfFloats>);

struct OneWay {
    static constexpr std::string_view name = "OneWay";
    using Options = Settings;
    using Context = Handles;
    using Arena = Buffer;
    static std::size_t available_memory();
    static void copy_from_host(Handles&, std::byte*, const std::byte*, std::size_t);
};
static_assert(!HasCopies<OneWay> && HasArena<OneWay> && !Device<OneWay>);

static_assert(!Device<int> && !Device<void>);

/// The message for a type that is not a device.
template <class D>
std::string diagnostic_of() {
    const CompileTimeMessage message = device_diagnostic<D>();
    return {message.characters, message.size};
}

static_assert(aligned(0) == 0 && aligned(1) == 64 && aligned(63) == 64 && aligned(64) == 64 && aligned(65) == 128);

}  // namespace

TEST_CASE("the diagnostic for a type that is not a device names its first missing part") {
    CHECK(diagnostic_of<Complete>().empty());
    CHECK(diagnostic_of<WithoutName>() ==
          "WithoutName is not a device: it lacks `static constexpr std::string_view name`");
    CHECK(
        diagnostic_of<ContextWithoutTeam>() ==
        "ContextWithoutTeam is not a device: it lacks `Options`, or a `Context` that is made from (int ordinal, const "
        "Options&) and has `ordinal()`, `team()` and `own_thread(int devices)`");
    CHECK(
        diagnostic_of<UnnamedArena>() ==
        "UnnamedArena is not a device: it lacks an `Arena` that is made from (bytes, name) with `data()` and `size()`, or "
        "`available_memory()`");
    CHECK(
        diagnostic_of<OneWay>() ==
        "OneWay is not a device: it lacks `copy_from_host` or `copy_to_host` of (Context&, std::byte* to, const std::byte* "
        "from, std::size_t)");
}

TEST_CASE("sizes are written in powers of ten with one decimal") {
    CHECK(bytes_text(0) == "0 bytes");
    CHECK(bytes_text(512) == "512 bytes");
    CHECK(bytes_text(999) == "999 bytes");
    CHECK(bytes_text(1'000) == "1.0 kB");
    CHECK(bytes_text(1'049) == "1.0 kB");
    CHECK(bytes_text(1'050) == "1.1 kB");
    CHECK(bytes_text(4'273'192) == "4.3 MB");
    CHECK(bytes_text(17'100'000'000) == "17.1 GB");
    CHECK(bytes_text(1'000'000'000'000'000) == "1000000.0 GB");
}

TEST_CASE("sizes just below a unit round up into it") {
    CHECK(bytes_text(999'949) == "999.9 kB");
    CHECK(bytes_text(999'950) == "1.0 MB");
    CHECK(bytes_text(999'999'999) == "1.0 GB");
}

TEST_CASE("the largest size there is does not overflow") { CHECK(bytes_text(~std::size_t{0}) == "18446744073.7 GB"); }
