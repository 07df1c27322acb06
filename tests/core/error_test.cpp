// SPDX-License-Identifier: Apache-2.0
//
// The exceptions and how their messages are put together.
#include "../test.hpp"

#include <stdexcept>

#include <cupola/core/error.hpp>

#include "comma_locale.hpp"

static_assert(std::is_base_of_v<std::runtime_error, Error>);
static_assert(std::is_base_of_v<Error, InvalidArgument> && std::is_base_of_v<Error, DataError> &&
              std::is_base_of_v<Error, DeviceError> && std::is_base_of_v<Error, OutOfMemory> &&
              std::is_base_of_v<Error, DivergedError> && std::is_base_of_v<Error, ReplicasDiffer>);

TEST_CASE("text joins words and numbers") {
    CHECK(text("batch of ", 128, " images") == "batch of 128 images");
    CHECK(text().empty());
    CHECK(text(std::string("a"), std::string_view("b"), 'c', true, false) == "abctruefalse");
}

TEST_CASE("text writes integers of every width and sign whole") {
    CHECK(text(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
    CHECK(text(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
    CHECK(text(static_cast<std::int32_t>(-7), ' ', static_cast<std::uint16_t>(65535)) == "-7 65535");
    CHECK(text(static_cast<std::uint8_t>(65)) == "65");
}

TEST_CASE("text writes floating-point numbers with six digits") {
    CHECK(text(0.5) == "0.5");
    CHECK(text(0.1F) == "0.1");
    CHECK(text(4.684321987) == "4.68432");
    CHECK(text(1e30) == "1e+30");
    CHECK(text(1234567.0) == "1.23457e+06");
    CHECK(text(-2.0) == "-2");
    CHECK(text(std::numeric_limits<double>::quiet_NaN()) == "nan");
    CHECK(text(std::numeric_limits<float>::infinity()) == "inf");
    CHECK(text(-std::numeric_limits<double>::infinity()) == "-inf");
    CHECK(text(std::numeric_limits<double>::lowest()) == "-1.79769e+308");
}

TEST_CASE("text writes a number with as many digits as are asked for") {
    CHECK(text("accuracy ", Decimals{0.53949, 3}, ' ', Decimals{2.5, 0}, ' ', Decimals{-0.04, 1}) ==
          "accuracy 0.539 2 -0.0");
    CHECK(text(Decimals{1e12, 2}) == "1000000000000.00");
    CHECK(text(Decimals{std::numeric_limits<double>::lowest(), 60}).size() == 371);
    CHECK(text(Decimals{-std::numeric_limits<double>::quiet_NaN(), 2}, Decimals{-HUGE_VAL, 2}) == "nan-inf");
    CHECK(text(SignificantDigits{1.0 / 3, 9}, ' ', SignificantDigits{-1.5e-300, 17}) ==
          "0.333333333 -1.5000000000000001e-300");
    CHECK(text(SignificantDigits{65536, 9}, ' ', SignificantDigits{4.0e9, 9}) == "65536 4e+09");
    const CommaLocale comma;
    CHECK(text(0.5, ' ', Decimals{1234.5, 2}, ' ', SignificantDigits{0.25, 9}) == "0.5 1234.50 0.25");
    CHECK(exact_text(1234.5) == "1234.5");
    CHECK(exact_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("text writes bytes in powers of ten") {
    CHECK(text("needs ", ByteCount{4'273'192}, " of ", ByteCount{512}) == "needs 4.3 MB of 512 bytes");
    CHECK(text(ByteCount{0}) == "0 bytes");
    CHECK(text(ByteCount{17'100'000'000}) == "17.1 GB");
}

TEST_CASE("require throws the named exception with the whole message, and nothing where the condition holds") {
    CHECK_NOTHROW(require(true, "never seen"));
    CHECK_THROWS_WITH_AS(require(false, "a batch of ", 128, " is larger than ", 100),
                         "a batch of 128 is larger than 100", InvalidArgument);
    CHECK_THROWS_WITH_AS(require<DataError>(false, "x.bin is empty"), "x.bin is empty", DataError);
}

TEST_CASE("the exceptions of a run carry their numbers") {
    const DivergedError diverged("the loss is nan", 1'234'567'890'123, 3);
    CHECK(std::string(diverged.what()) == "the loss is nan");
    CHECK(diverged.step == 1'234'567'890'123);
    CHECK(diverged.replica == 3);
    const ReplicasDiffer differ("device 2 differs", 50, 2);
    CHECK(differ.step == 50);
    CHECK(differ.device == 2);
    CHECK_THROWS_AS(throw ReplicasDiffer("device 2 differs", 50, 2), Error);
}
