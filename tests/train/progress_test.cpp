// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/progress.hpp>

#include "../test.hpp"

namespace {

/// The output of `use` with a line on a terminal, or on none.
template <class Use>
std::string shown(bool terminal, Use&& use) {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    ProgressLine line(terminal, file);
    use(line);
    std::string text;
    std::rewind(file);
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    std::fclose(file);
    return text;
}

}  // namespace

TEST_CASE("a progress line shows the work done, the total and the time left, and is erased at the end") {
    const auto use = [](ProgressLine& line) {
        line.show(100, 400, "images", monotonic_seconds() - 1234.5);
        line.clear();
    };
    CHECK(shown(true, use) == "\r\033[K100 of 400 images, 1:01:43 left\r\r\033[K");
    CHECK(shown(false, use).empty());
}

TEST_CASE("a progress line is written at most five times per second, and at the end") {
    const std::string text = shown(true, [](ProgressLine& line) {
        for (int done = 1; done <= 1000; ++done) line.show(done, 1000, "images", monotonic_seconds());
    });
    CHECK(text.starts_with("\r\033[K1 of 1000 images, 0:00:0"));
    CHECK(text.ends_with("\r\033[K1000 of 1000 images, 0:00:00 left\r"));
    CHECK(text.size() < 200'000 / 10);
}
