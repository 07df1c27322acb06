// SPDX-License-Identifier: Apache-2.0
//
// Messages that the compiler prints.
#include "../test.hpp"

#include <cupola/core/compile_time_message.hpp>

namespace {

constexpr std::string_view view(const CompileTimeMessage& message) { return {message.characters, message.size}; }

constexpr CompileTimeMessage example = [] {
    CompileTimeMessage message;
    message << "layer " << 3 << " takes " << Shape{24, 24, 3} << ", not " << Shape{10};
    return message;
}();
static_assert(view(example) == "layer 3 takes 24 x 24 x 3, not 10");

constexpr CompileTimeMessage numbers = [] {
    CompileTimeMessage message;
    message << 0 << " " << -7 << " " << 1'068'298 << " " << std::numeric_limits<std::int64_t>::max();
    return message;
}();
static_assert(view(numbers) == "0 -7 1068298 9223372036854775807");

static_assert(CompileTimeMessage{}.empty() && !example.empty());
static_assert(static_assert_message<CompileTimeMessage{}>(), "an empty message is no error");

// Slices make up the whole.
static_assert(impl::slice<6>(example, 0).view() == "layer" && impl::slice<8>(example, 6).view() == "3 takes");

}  // namespace

TEST_CASE("a message that is too long is truncated, not written past its end") {
    CompileTimeMessage message;
    for (int i = 0; i < 100; ++i) message << "ten chars ";
    CHECK(message.size == CompileTimeMessage::capacity);
    CHECK(view(message).substr(0, 20) == "ten chars ten chars ");
}
