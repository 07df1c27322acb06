// SPDX-License-Identifier: Apache-2.0
//
// Numbers from texts, by the C library as by std::from_chars.
#include <cupola/core/number_from_chars.hpp>

#include "../test.hpp"

#include <sstream>

#include <cupola/core/philox.hpp>

#ifdef __cpp_lib_to_chars
namespace {

template <class Number, class Bits>
bool same(const std::string& text) {
    Number expected = 7, found = 7;
    const char* const end = text.data() + text.size();
    const auto [expected_end, expected_error] = std::from_chars(text.data(), end, expected);
    const auto [found_end, found_error] = impl::from_chars_by_strtod(text.data(), end, found);
    INFO(text);
    CHECK(found_error == expected_error);
    CHECK(found_end - text.data() == expected_end - text.data());
    CHECK(std::bit_cast<Bits>(found) == std::bit_cast<Bits>(expected));
    return found_error == expected_error && found_end == expected_end &&
           std::bit_cast<Bits>(found) == std::bit_cast<Bits>(expected);
}
bool same_in_both(const std::string& text) {
    const bool floats = same<float, std::uint32_t>(text);
    return same<double, std::uint64_t>(text) && floats;
}

}  // namespace

TEST_CASE("the C library finds the number, its end and the error that std::from_chars finds") {
    std::istringstream texts(
        "|-|+1| 1|1 |1|-1|--1|0|-0|0.0e9|1.|.5|.|-.5|1..2|1.2.3|1e|1e+|1e-|1e5|1E5|1e+05|1e-5x|1,5|0x1p3|"
        "0x10|infx|inf|-inf|INFINITY|infinit|nan|-NaN|nan(|nan()|nan(12_a)|nan(1-2)|na|i|1e38|3.4028235e38|"
        "3.4028236e38|3.40282357e38|1e39|-1e39|1e308|1.7976931348623157e308|1.7976931348623159e308|1e309|"
        "1e-37|1e-38|1e-45|7e-46|7.1e-46|1e-46|-1e-50|1e-323|2e-324|3e-324|1e-400|0e-400|"
        "1e99999999999999999999|1e-99999999999999999999|00001|16777217|16777219|9007199254740993|0.1|"
        "0.30000001192092896|179769313486231580793728971405301e277|"
        "1.00000005960464477539062500000000000000000000000000000000000000000000000000001|123abc|1\n|1e5e5|e5|"
        "1_000");
    for (std::string text; std::getline(texts, text, '|');) same_in_both(text);
    CHECK(same_in_both(std::string(400, '9')));
    CHECK(same_in_both("0." + std::string(400, '0') + "1e400"));
    CHECK(same_in_both(std::string("1\0002", 3)));
}

TEST_CASE("texts made at random are read as std::from_chars reads them") {
    constexpr std::string_view characters = "0123456789012345678901234567890123456789.-+einfa";
    std::string text;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        const auto words = RandomStream(1, RngDomain::user, 0, i).words(0);
        text.clear();
        for (std::uint32_t k = 0; k < 1 + words[0] % 20; ++k)
            text += characters[RandomStream(2, RngDomain::user, 0, i).words(k)[0] % characters.size()];
        if (words[1] % 2 == 0) text += "e" + std::to_string(static_cast<int>(words[2] % 640) - 320);
        if (!same_in_both(text)) break;
    }
}
#endif

TEST_CASE("a whole number is read too") {
    const std::string_view text = "-12x";
    std::int64_t value = 0;
    CHECK(number_from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + 3);
    CHECK(value == -12);
    double real = 0;
    CHECK(number_from_chars(text.data(), text.data() + text.size(), real).ptr == text.data() + 3);
    CHECK(real == -12);
}
