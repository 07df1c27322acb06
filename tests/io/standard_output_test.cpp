// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/standard_output.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// The text that `write` writes.
template <class Write>
std::string written(bool json, Write&& write) {
    const File file(std::tmpfile(), &std::fclose);
    write(StandardOutput(json, file.get()));
    std::rewind(file.get());
    std::string text(1000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    return text;
}

}  // namespace

TEST_CASE("a message is printed as lines or as one JSON object, and printed text is unchanged") {
    const auto messages = [](const StandardOutput& output) {
        output.print_message("two\nlines\n");
        output.print_message("one");
        output.print("{}");
        output.print("ended\n");
    };
    CHECK(written(false, messages) == "two\nlines\none\n{}\nended\n");
    CHECK(written(true, messages) == "{\"message\":\"two\\u000alines\"}\n{\"message\":\"one\"}\n{}\nended\n");
}

TEST_CASE("a file that cannot be written is an error") {
    const File full(std::fopen("/dev/full", "w"), &std::fclose);
    REQUIRE(full != nullptr);
    CHECK(message_of<DataError>([&] { StandardOutput(false, full.get()).print_message("a"); }) ==
          "the result could not be written to standard output: No space left on device");
}

TEST_CASE("a copy has the lines from before and after its file is opened, as they are printed") {
    OutputCopy copy;
    for (const bool json : {false, true}) {
        const File file(std::tmpfile(), &std::fclose), silence(std::fopen("/dev/null", "w"), &std::fclose);
        const StandardOutput output(json, silence.get(), &copy);
        output.print_message("a header\nof two lines");
        copy.open(file.get(), "train.log");
        output.print("a result");
        std::rewind(file.get());
        std::string text(100, '\0');
        text.resize(std::fread(text.data(), 1, text.size(), file.get()));
        CHECK(text == (json ? "{\"message\":\"a header\\u000aof two lines\"}\na result\n"
                            : "a header\nof two lines\na result\n"));
        copy = {};
    }
    const File full(std::fopen("/dev/full", "w"), &std::fclose), silence(std::fopen("/dev/null", "w"), &std::fclose);
    StandardOutput(false, silence.get(), &copy).print("a");
    CHECK(message_of<DataError>([&] { copy.open(full.get(), "run/train.log"); }) ==
          "the log run/train.log could not be written: No space left on device");
}

TEST_CASE("a JSON string escapes quotes, backslashes and control characters, and keeps characters of every length") {
    CHECK(json_string("") == "\"\"");
    CHECK(json_string("a\"b\\c") == R"("a\"b\\c")");
    CHECK(json_string(std::string("\0\t\n\x1f\x7f", 5)) == "\"\\u0000\\u0009\\u000a\\u001f\x7f\"");
    for (const char* const text :
         {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
        CHECK(json_string(text) == '"' + std::string(text) + '"');
    }
}

TEST_CASE("each byte that is not UTF-8 becomes U+FFFD") {
    // A lone continuation, a character cut short, one too long for its value, half of a UTF-16 pair, beyond the last.
    CHECK(json_string("\x80z") == R"("\ufffdz")");
    CHECK(json_string("\xe2\x82") == R"("\ufffd\ufffd")");
    CHECK(json_string("\xc0\x80") == R"("\ufffd\ufffd")");
    CHECK(json_string("\xe0\x80\x80") == R"("\ufffd\ufffd\ufffd")");
    CHECK(json_string("\xed\xa0\x80") == R"("\ufffd\ufffd\ufffd")");
    CHECK(json_string("\xf0\x80\x80\x80") == R"("\ufffd\ufffd\ufffd\ufffd")");
    CHECK(json_string("\xf4\x90\x80\x80") == R"("\ufffd\ufffd\ufffd\ufffd")");
    CHECK(json_string("\xff") == R"("\ufffd")");
}
