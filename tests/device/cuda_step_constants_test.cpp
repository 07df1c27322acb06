// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/device/step_constants.hpp
//
// The constants of a captured step: where they lie, and what is said of a step that has others. No GPU is needed.
#include <cupola/device/step_constants.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "../throws_with.hpp"

using namespace cupola;
using impl::StepConstants;

namespace {

struct Three {
    float a, b, c;
};
struct Five {
    float a[5];
};

/// Where a constant lies, in bytes from the beginning.
std::ptrdiff_t offset(const void* place, const std::byte* from) { return static_cast<const std::byte*>(place) - from; }

template <class K>
K at(std::span<const std::byte> values, std::size_t offset) {
    K k;
    std::memcpy(&k, values.data() + offset, sizeof k);
    return k;
}

}  // namespace

TEST_CASE("constants lie one after another, each at a multiple of 16 bytes, at the same places in each step") {
    alignas(64) std::array<std::byte, 256> device{};
    StepConstants constants(device.data(), device.size());
    for (int step = 0; step < 3; ++step) {
        for (const bool launching : {false, true}) {
            const auto number = static_cast<float>(step);
            constants.begin(launching);
            CHECK(constants.launching() == launching);
            CHECK(offset(constants.take(Three{number, 2, 3}), device.data()) == 0);
            CHECK(offset(constants.take(Five{{1, 2, 3, 4, number}}), device.data()) == 16);
            CHECK(offset(constants.take(number + 0.5F), device.data()) == 48);
            const std::span<const std::byte> values = constants.values();
            CHECK(values.size() == 64);
            CHECK(at<Three>(values, 0).a == number);
            CHECK(at<Five>(values, 16).a[4] == number);
            CHECK(at<float>(values, 48) == number + 0.5F);
        }
    }
    CHECK(device == std::array<std::byte, 256>{});  // that is a kernel's to write
    CHECK(constants.on_device() == device.data());
}

TEST_CASE("a step without constants has no values") {
    std::array<std::byte, 16> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin(false);
    CHECK(constants.values().empty());
}

TEST_CASE("constants that do not fit are refused with the bytes that there are") {
    alignas(16) std::array<std::byte, 48> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin(false);
    static_cast<void>(constants.take(Five{}));
    static_cast<void>(constants.take(1.0F));
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take(1.0F)); }) ==
          "the constants of the optimiser's step need more than the 48 bytes that there are: number 2 ends at byte 64");
}

TEST_CASE("a step whose constants are others than the first's is refused") {
    alignas(16) std::array<std::byte, 128> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin(true);
    static_cast<void>(constants.take(Three{}, 1));
    static_cast<void>(constants.take(Five{}));
    CHECK(constants.values().size() == 48);

    const char* const captured = "a step on Cuda is captured once, and the next are to launch the same";
    constants.begin(false);
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take(Five{}, 1)); }) ==
          text("constant 0 of the optimiser's step has 20 bytes and is launched as 1, and had 12 and 1 in the first: ",
               captured));
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take(Three{}, 0)); }) ==
          text("constant 0 of the optimiser's step has 12 bytes and is launched as 0, and had 12 and 1 in the first: ",
               captured));
    static_cast<void>(constants.take(Three{}, 1));
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.values()); }) ==
          text("the optimiser has 1 constants in this step and had 2 in the first: ", captured));
    static_cast<void>(constants.take(Five{}));
    CHECK(constants.values().size() == 48);
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take(1.0F)); }) ==
          text("the optimiser has more constants in this step than the 2 of the first: ", captured));
}

TEST_CASE("a first step that was broken off is not the one that others are compared with") {
    alignas(16) std::array<std::byte, 128> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin(true);
    static_cast<void>(constants.take(Five{}));  // and then a launch was refused
    constants.begin(false);
    static_cast<void>(constants.take(Three{}));
    static_cast<void>(constants.take(Five{}));
    CHECK(constants.values().size() == 48);
}

TEST_CASE("an arena without memory refuses the first constant") {
    StepConstants constants{CudaArena()};
    constants.begin(false);
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take(1.0F)); }) ==
          "the constants of the optimiser's step need more than the 0 bytes that there are: number 0 ends at byte 16");
}
