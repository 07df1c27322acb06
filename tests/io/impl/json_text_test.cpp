// SPDX-License-Identifier: Apache-2.0
#include "../../test.hpp"

#include <cupola/io/impl/json_text.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <throws_with.hpp>

using cupola::impl::JsonText;

namespace {

/// The string that `json` stands for; the message of the error if it is invalid.
std::string read_string(std::string json) {
    const std::string file = "f";
    try {
        JsonText cursor(json, file);
        const std::string_view written = cursor.string();
        cursor.expect_end();
        const std::string copy(written);
        std::string buffer = copy;
        return std::string(cupola::impl::unescape(buffer.data(), buffer));
    } catch (const DataError& error) {
        return error.what();
    }
}

constexpr std::string_view not_a_byte = "a string has a byte that JSON does not allow";

std::string natural(std::string_view json) {
    const std::string file = "f";
    try {
        JsonText cursor(json, file);
        const auto value = cursor.natural();
        cursor.expect_end();
        return std::to_string(value);
    } catch (const DataError& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("A JSON string is read with its escapes resolved") {
    CHECK(read_string(R"("")").empty());
    CHECK(read_string(R"("conv1.weight")") == "conv1.weight");
    CHECK(read_string(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
    CHECK(read_string(R"("\u0041\u00e9\u20AC\ud83d\ude00")") == "A\u00e9\u20ac\U0001F600");
    CHECK(read_string(R"("\ud800\udc00\udbff\udfff")") == "\U00010000\U0010FFFF");
    CHECK(read_string("\"\u00e9\u20ac\U0001F600\"") == "\u00e9\u20ac\U0001F600");
}

TEST_CASE("Text that is not a JSON string is rejected") {
    for (const char* json :
         {R"("\x")", R"("\u12")", R"("\u123g")", R"("\ud800")", R"("\ud800x")", R"("\ud800\u0041")", R"("\udc00")",
          "\"\n\"", "\"\x1f\"", "\"\x80\"", "\"\xC3\"", "\"\xC0\x80\"", "\"\xE0\x80\x80\"", "\"\xED\xA0\x80\"",
          "\"\xF0\x80\x80\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xFF\"", "\"\xE2\x82\""}) {
        CAPTURE(json);
        CHECK(contains(read_string(json), std::string(not_a_byte)));
    }
    CHECK(contains(read_string(R"("open)"), "a string is not terminated"));
    CHECK(contains(read_string(R"("open\)"), std::string(not_a_byte)));
    CHECK(contains(read_string("open"), "'\"' is missing"));
    CHECK(contains(read_string(R"("a" "b")"), "text follows its end"));
    CHECK(contains(read_string(std::string("\"a\"\0", 4)), "text follows its end"));
}

TEST_CASE("A natural number is decimal, without a leading zero, and below 2^63") {
    CHECK(natural("0") == "0");
    CHECK(natural(" 42\n") == "42");
    CHECK(natural("9223372036854775807") == "9223372036854775807");
    CHECK(contains(natural("9223372036854775808"), "too large"));
    CHECK(contains(natural("99999999999999999999999"), "too large"));
    CHECK(contains(natural("007"), "begins with 0"));
    CHECK(contains(natural("-1"), "a natural number is missing"));
    CHECK(contains(natural(""), "a natural number is missing"));
    CHECK(contains(natural("1.0"), "text follows its end"));
    CHECK(contains(natural("1e3"), "text follows its end"));
}

TEST_CASE("A value of any kind is skipped, and what is none is rejected") {
    const auto skipped = [](const std::string& json) {
        const std::string file = "f";
        JsonText cursor(json, file, {.format = "a list", .part = " of it"});
        cursor.skip_value();
        cursor.expect(';');
        cursor.expect_end();
    };
    for (const char* const json :
         {"0", "-0", "12", "-1.5e-10", "1E+5", "0.25", "true", "false", "null", R"("a\n")", "{}", "[]", "[[],{}]",
          "[1, 2]", R"({"a":1})", R"( { "a" : { "b" : [ ] } , "c" : [ { } , null ] } )", R"([[[1],2],{"a":[]}])"}) {
        CAPTURE(json);
        CHECK_NOTHROW(skipped(text(json, " ;")));
    }
    for (const char* const json :
         {"",   "-",   "01",        "1.",   ".5",      "1e",       "+1",         "tru",       "nul",
          "{",  "[",   "[1",        "[1,]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{1:2}",     "[}",
          "{]", "[1}", "{\"a\":1]", "]",    "[1 2]",   "NaN",      "\"a",        "{\"a\":[}]"}) {
        CAPTURE(json);
        CHECK(message_of<DataError>([&] {
                  skipped(text(json, ";"));
              }).starts_with("f is damaged or is not a list: at byte "));
    }
    CHECK_NOTHROW(skipped(std::string(64, '[') + std::string(64, ']') + ";"));
    CHECK(message_of<DataError>([&] { skipped(std::string(66, '[') + std::string(66, ']') + ";"); }) ==
          "f is damaged or is not a list: at byte 65 of it values are nested more than 64 deep");
}

TEST_CASE("A string that is written as JSON is read as it was") {
    std::string every;
    for (char c = 1; c < 127; ++c) every += c;
    every += "\u00e9\u20ac\U0001F600";
    std::string json;
    cupola::impl::append_json_string(json, every);
    CHECK(read_string(json) == every);
    CHECK(contains(message_of<cupola::InvalidArgument>([&] { cupola::impl::append_json_string(json, "a\xFF"); }),
                   "not UTF-8 at byte 1"));
}

TEST_CASE("A text of a file is shown on one line and shortened") {
    CHECK(cupola::impl::shown("conv1.weight") == "conv1.weight");
    CHECK(cupola::impl::shown("a\nb\x7F\xFF\u00e9") == "a?b??\u00e9");
    CHECK(cupola::impl::shown(std::string(1000, 'x')) == std::string(100, 'x') + "...");
}
