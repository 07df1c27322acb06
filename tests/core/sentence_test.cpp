// SPDX-License-Identifier: Apache-2.0
//
// Sentences that the compiler writes.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <doctest/doctest.h>
#include <cupola/core/sentence.hpp>

using namespace cupola;

namespace {

constexpr std::string_view view(const Sentence& sentence) { return {sentence.characters, sentence.size}; }

constexpr Sentence example = [] {
    Sentence sentence;
    sentence << "layer " << 3 << " takes " << Shape{24, 24, 3} << ", not " << Shape{10};
    return sentence;
}();
static_assert(view(example) == "layer 3 takes 24 x 24 x 3, not 10");

constexpr Sentence numbers = [] {
    Sentence sentence;
    sentence << 0 << " " << -7 << " " << 1'068'298 << " " << std::numeric_limits<std::int64_t>::max();
    return sentence;
}();
static_assert(view(numbers) == "0 -7 1068298 9223372036854775807");

static_assert(Sentence{}.empty() && !example.empty());
static_assert(report_mistake<Sentence{}>(), "an empty sentence is no mistake");

// Slices make up the whole.
static_assert(impl::slice<6>(example, 0).view() == "layer" && impl::slice<8>(example, 6).view() == "3 takes");

}  // namespace

TEST_CASE("a sentence that is too long is cut, not written past its end") {
    Sentence sentence;
    for (int i = 0; i < 100; ++i) sentence << "ten chars ";
    CHECK(sentence.size == Sentence::capacity);
    CHECK(view(sentence).substr(0, 20) == "ten chars ten chars ");
}
