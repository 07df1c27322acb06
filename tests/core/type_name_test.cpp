// SPDX-License-Identifier: Apache-2.0
//
// Names of types as they appear in error sentences.
#include <string_view>

#include <cupola/core/type_name.hpp>
#include <doctest/doctest.h>

namespace somewhere {
struct Plain {};
template <int channels, int kernel>
struct Conv {};
template <class T>
struct Holds {};
namespace deep {
struct Inner {};
}  // namespace deep
}  // namespace somewhere

struct AtTheTop {};

using cupola::type_name;

static_assert(type_name<somewhere::Plain>() == "Plain");
static_assert(type_name<somewhere::Conv<64, 5>>() == "Conv<64, 5>");
static_assert(type_name<somewhere::deep::Inner>() == "Inner", "all enclosing namespaces are left out");
static_assert(type_name<AtTheTop>() == "AtTheTop");
static_assert(type_name<int>() == "int" && type_name<double>() == "double");

TEST_CASE("namespaces of template arguments do not cut the name short") {
    const std::string_view name = type_name<somewhere::Holds<somewhere::Plain>>();
    CHECK(name.substr(0, 6) == "Holds<");
    CHECK(name.back() == '>');
    CHECK(name.find("Plain") != std::string_view::npos);
}
