// SPDX-License-Identifier: Apache-2.0
//
// What tests include before the headers that they test: doctest, and the common headers of the standard library. The
// library's names need no `cupola::` in a test. CAPTURES(a, b, c) is CAPTURE of several expressions.
// TYPED_TEST_CASE(name, T, List) is a test case for each type of a std::tuple.
#pragma once

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <doctest/doctest.h>

#include "standard.hpp"

namespace cupola {
}
using namespace cupola;

/// The base of what is not copied.
struct NotCopied {
    NotCopied() = default;
    NotCopied(const NotCopied&) = delete;
    NotCopied& operator=(const NotCopied&) = delete;
};

/// INFO by function pointers: doctest's is a class with virtual functions of its own for each place that it stands at, which are a
/// tenth of the code of a test of kernels.
class InfoScope : public doctest::detail::ContextScopeBase {
public:
    template <class Print>
    explicit InfoScope(const Print& print)
        : print_(&print), call_([](const void* of, std::ostream* to) { (*static_cast<const Print*>(of))(to); }) {}
    InfoScope(const InfoScope&) = delete;
    InfoScope& operator=(const InfoScope&) = delete;
    ~InfoScope() override { destroy(); }
    void stringify(std::ostream* to) const override { call_(print_, to); }

private:
    const void* print_;
    void (*call_)(const void*, std::ostream*);
};
#undef DOCTEST_INFO_IMPL
#define DOCTEST_INFO_IMPL(builder, to, ...)                                                        \
    const auto DOCTEST_CAT(print, builder) = [&](std::ostream* to) {                               \
        doctest::detail::MessageBuilder builder(__FILE__, __LINE__, doctest::assertType::is_warn); \
        builder.m_stream = to;                                                                     \
        builder* __VA_ARGS__;                                                                      \
    };                                                                                             \
    const InfoScope DOCTEST_CAT(scope, builder)(DOCTEST_CAT(print, builder))

#define CAPTURES(...) INFO(captured(#__VA_ARGS__, __VA_ARGS__))

/// What CAPTURES prints: the expressions and their values.
template <class First, class... Rest>
[[nodiscard]] std::string captured(const char* expressions, const First& first, const Rest&... rest) {
    std::string result = std::string(expressions) + " := " + doctest::toString(first).c_str();
    ((result += std::string(", ") + doctest::toString(rest).c_str()), ...);
    return result;
}

// What TEST_CASE_TEMPLATE is, whose types stand in the place of the list.
#define TYPED_TEST_CASE(name, T, List) TYPED_TEST_CASE_NAMED(name, T, List, DOCTEST_ANONYMOUS(DOCTEST_ANON_TMP_))
#define TYPED_TEST_CASE_NAMED(name, T, List, function)                                          \
    DOCTEST_TEST_CASE_TEMPLATE_DEFINE_IMPL(name, T, DOCTEST_CAT(function, ITERATOR), function); \
    DOCTEST_TEST_CASE_TEMPLATE_INSTANTIATE_IMPL(function, function, List)                       \
    template <class T>                                                                          \
    static void function()
