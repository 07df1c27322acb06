// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/device/cuda/step_constants.hpp
//
// The constants of a captured step: their offsets, and the errors for a step with different ones. No GPU is needed.
#include <cupola/device/cuda/step_constants.hpp>

#include "../test.hpp"

#include "../throws_with.hpp"

using impl::StepConstants;

namespace {

struct Three {
    float a, b, c;
};
struct Five {
    float a[5];
};

/// Where the next constant lies, in bytes from the beginning.
template <class K>
std::ptrdiff_t next(StepConstants& constants, const std::byte* from) {
    return reinterpret_cast<const std::byte*>(constants.take<K>()) - from;
}

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
        const auto number = static_cast<float>(step);
        constants.begin();
        constants.write(Three{number, 2, 3});
        constants.write(Five{{1, 2, 3, 4, number}});
        constants.write(number + 0.5F);
        const std::span<const std::byte> values = constants.values();
        CHECK(values.size() == 64);
        CHECK(at<Three>(values, 0).a == number);
        CHECK(at<Five>(values, 16).a[4] == number);
        CHECK(at<float>(values, 48) == number + 0.5F);
        for (int update = 0; update < 2; ++update) {
            constants.rewind();
            CHECK(next<Three>(constants, device.data()) == 0);
            CHECK(next<Five>(constants, device.data()) == 16);
            CHECK(next<float>(constants, device.data()) == 48);
        }
    }
    CHECK(device == std::array<std::byte, 256>{});  // that is a kernel's to write
    CHECK(constants.on_device() == device.data());
}

TEST_CASE("a step without constants has no values") {
    std::array<std::byte, 16> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin();
    CHECK(constants.values().empty());
}

TEST_CASE("constants that do not fit are rejected with the size of their memory") {
    alignas(16) std::array<std::byte, 48> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin();
    constants.write(Five{});
    constants.write(1.0F);
    CHECK(message_of<InvalidArgument>([&] { constants.write(1.0F); }) ==
          "the constants of the optimiser's step need more than their 48 bytes of memory: constant 2 ends at byte 64");
}

TEST_CASE(
    "a step whose constants differ from those of the first is rejected, and so is an update that reads different ones") {
    alignas(16) std::array<std::byte, 128> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin();
    constants.write(Three{});
    constants.write(Five{});
    CHECK(constants.values().size() == 48);

    const char* const captured =
        "a step on Cuda is captured once and then repeated, so its constants must stay the same in number and type";
    const std::string other =
        text("constant 0 of the optimiser's step is Five, and was Three in the first: ", captured);
    const std::string more = text("the optimiser has more constants in this step than the 2 of the first: ", captured);
    constants.begin();
    CHECK(message_of<InvalidArgument>([&] { constants.write(Five{}); }) == other);
    constants.write(Three{});
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.values()); }) ==
          text("the optimiser has 1 constants in this step and had 2 in the first: ", captured));
    constants.write(Five{});
    CHECK(constants.values().size() == 48);
    CHECK(message_of<InvalidArgument>([&] { constants.write(1.0F); }) == more);

    constants.rewind();
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take<Five>()); }) == other);
    static_cast<void>(constants.take<Three>());
    static_cast<void>(constants.take<Five>());
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(constants.take<Five>()); }) == more);
}

TEST_CASE("a first step that was aborted is not the reference for later steps") {
    alignas(16) std::array<std::byte, 128> device{};
    StepConstants constants(device.data(), device.size());
    constants.begin();
    constants.write(Five{});  // and then a schedule threw
    constants.begin();
    constants.write(Three{});
    constants.write(Five{});
    CHECK(constants.values().size() == 48);
}

TEST_CASE("an arena without memory rejects the first constant") {
    StepConstants constants{CudaArena()};
    constants.begin();
    CHECK(message_of<InvalidArgument>([&] { constants.write(1.0F); }) ==
          "the constants of the optimiser's step need more than their 0 bytes of memory: constant 0 ends at byte 16");
}
