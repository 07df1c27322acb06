// SPDX-License-Identifier: Apache-2.0
//
// Names of types as they appear in error messages.
//
// A unit of its own, because a type here is in no namespace.
#include "../test.hpp"

#include <cupola/core/fixed_string.hpp>
#include <cupola/core/type_name.hpp>

namespace somewhere {
struct Plain {};
template <int channels, int kernel>
struct Conv {};
template <int channels, int kernel, auto... options>
struct Optioned {};
template <cupola::Number value>
struct Scaled {};
template <class T>
struct Holds {};
namespace deep {
struct Inner {};
}  // namespace deep
struct Option {
    int value;
};
template <int channels, int kernel, auto... options>
struct WithOptions {};
template <cupola::Number rate>
struct WithRate {};
template <int radius, cupola::Number rate>
struct WithBoth {};
template <int channels, auto kernel, auto... options>
struct OfAnyKernel {};
struct L {};
}  // namespace somewhere

struct AtTheTop {};

static_assert(type_name<somewhere::Plain>() == "Plain");
static_assert(type_name<somewhere::Conv<64, 5>>() == "Conv<64, 5>");
static_assert(type_name<somewhere::deep::Inner>() == "Inner", "all enclosing namespaces are left out");
static_assert(type_name<AtTheTop>() == "AtTheTop");
static_assert(short_type_name<somewhere::Conv<64, 5>>() == "Conv<64, 5>");
static_assert(short_type_name<somewhere::Conv<-1, 0>>() == "Conv<-1, 0>");
static_assert(short_type_name<somewhere::Plain>() == "Plain");
static_assert(short_type_name<somewhere::Optioned<64, 5, somewhere::Plain{}>>() == "Optioned<64, 5>",
              "options are left out");
static_assert(short_type_name<somewhere::Scaled<0.5>>() == "Scaled<0.5>");
static_assert(short_type_name<somewhere::Scaled<0.004>>() == "Scaled<0.004>");
static_assert(short_type_name<somewhere::Scaled<-12.25>>() == "Scaled<-12.25>");
static_assert(short_type_name<somewhere::Scaled<1>>() == "Scaled<1>");
static_assert(short_type_name<somewhere::Scaled<0>>() == "Scaled<0>");
static_assert(type_name<int>() == "int" && type_name<double>() == "double");

static_assert(short_type_name<somewhere::Plain>() == "Plain");
static_assert(short_type_name<somewhere::WithOptions<64, 5>>() == "WithOptions<64, 5>");
static_assert(short_type_name<somewhere::WithOptions<64, -5, somewhere::Option{2}, true>>() == "WithOptions<64, -5>",
              "options after the sizes are left out");
static_assert(short_type_name<somewhere::WithBoth<4, 0.5>>() == "WithBoth<4>");
// clang writes a long argument of a parameter of any type with a suffix.
static_assert(short_type_name<somewhere::OfAnyKernel<64, 5>>() == "OfAnyKernel<64, 5>");
static_assert(short_type_name<somewhere::OfAnyKernel<64, 5L>>() == "OfAnyKernel<64, 5>");
static_assert(short_type_name<somewhere::OfAnyKernel<64, 5UL, true>>() == "OfAnyKernel<64, 5>");
static_assert(short_type_name<somewhere::OfAnyKernel<64, somewhere::Option{5}>>() == "OfAnyKernel<64>");
static_assert(short_type_name<somewhere::Holds<somewhere::L>>() == type_name<somewhere::Holds<somewhere::L>>());
static_assert(short_type_name<somewhere::WithRate<0.5>>() == "WithRate<0.5>");
static_assert(short_type_name<somewhere::WithRate<0.0>>() == "WithRate<0>");
static_assert(short_type_name<somewhere::WithRate<-0.25>>() == "WithRate<-0.25>");
static_assert(short_type_name<somewhere::WithRate<10.0>>() == "WithRate<10>");
static_assert(short_type_name<somewhere::WithRate<100.05>>() == "WithRate<100.05>");
static_assert(short_type_name<somewhere::WithRate<0.1>>() == "WithRate<0.1>", "as written, rounding errors and all");

TEST_CASE("namespaces of template arguments do not cut the name short") {
    const std::string_view name = type_name<somewhere::Holds<somewhere::Plain>>();
    CHECK(name.substr(0, 6) == "Holds<");
    CHECK(name.back() == '>');
    CHECK(name.find("Plain") != std::string_view::npos);
}
