// SPDX-License-Identifier: Apache-2.0
//
// CommaLocale: while it lives, the numbers of printf and strtod have a decimal comma, as after setlocale(LC_ALL, "") in a German
// environment. It brings its own locale: a small machine has none but C.
#pragma once

#include "test.hpp"

#include <clocale>

#include "temporary_folder.hpp"

class CommaLocale : NotCopied {
public:
    CommaLocale() {
        // The file that glibc's localedef makes of `decimal_point ","`, `thousands_sep "."` and `grouping 3;3`.
        constexpr char file[] =
            "\x14\x11\x03\x20\x06\0\0\0\x20\0\0\0\x22\0\0\0\x24\0\0\0\x28\0\0\0\x2c\0\0\0\x30\0\0\0"
            ",\0.\0\3\3\0\0,\0\0\0.\0\0\0ANSI_X3.4-1968";
        folder_.write("comma/LC_NUMERIC", file);
        setenv("LOCPATH", folder_.path().c_str(), 1);
        REQUIRE(std::setlocale(LC_NUMERIC, "comma") != nullptr);
        std::array<char, 8> half{};
        std::snprintf(half.data(), half.size(), "%g", 0.5);
        REQUIRE(std::string(half.data()) == "0,5");
    }
    ~CommaLocale() {
        std::setlocale(LC_NUMERIC, "C");
        unsetenv("LOCPATH");
    }

private:
    TemporaryFolder folder_;
};
