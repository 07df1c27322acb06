#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# forbidden_calls.sh finds each kind of error in a header, and none in a header without.
. "$(dirname "$0")/test_of_script.sh"

# expect RESULT HEADER LINE
expect() {
    rm -rf "$tree/cupola"
    mkdir -p "$(dirname "$tree/cupola/$2")"
    echo "$3" >"$tree/cupola/$2"
    says "$1" "$2" "$2 with '$3'"
}

expect accepted io/a.hpp 'if (impl::is_finite(x) && !is_nan(y) && a.size == size && size == b.size && x == y) return;'
expect accepted io/a.hpp '// std::isnan(x) or x != x'
expect accepted ops/cuda/a.hpp 'valid = !isnan(loss) || x == x;'
expect accepted ops/impl/kernel_parts/a.hpp 'valid = x == x;'
expect accepted io/a.hpp 'float least = std::numeric_limits<float>::infinity(), most = -least;'
expect accepted io/a.hpp 'namespace cupola { inline namespace CUPOLA_ABI {'
expect refused io/a.hpp 'namespace cupola::inline CUPOLA_ABI {'
expect refused io/a.hpp 'if (std::isfinite(x)) return;'
expect refused io/a.hpp 'return !isnan(x);  // never'
expect refused io/a.hpp 'const bool bad = x != x;'
expect refused io/a.hpp 'return (values[i] == values[i]) & other;'
expect refused io/a.hpp 'return std::numeric_limits<double>::quiet_NaN();'
expect refused io/a.hpp 'const float none = NAN;'
expect refused io/a.hpp 'if (x < INFINITY) return;'
expect refused io/a.hpp 'return x == std::numeric_limits<double>::infinity();'
expect accepted io/a.hpp 'std::snprintf(digits, sizeof digits, "%08x %lld 5 %% free", sum, count);'
expect accepted io/a.hpp '//   std::printf("%.3f", result);'
expect accepted io/a.hpp 'std::from_chars(begin, end, value); std::to_chars(begin, end, value);'
expect refused io/a.hpp 'std::snprintf(digits, sizeof digits, "%.*f", places, value);'
expect refused io/a.hpp 'put(R"("loss":%.9g,)", loss);'
expect refused io/a.hpp 'std::printf("%08.3e\n", value);'
expect refused io/a.hpp 'const double x = std::strtod(text, nullptr);'
expect refused io/a.hpp 'x = std::stof(text);'
expect refused io/a.hpp 'std::ostringstream line;'
expect refused io/a.hpp 'return std::to_string(0.5);'
expect refused io/a.hpp 'std::setlocale(LC_ALL, "");'
