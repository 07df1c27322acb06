#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# headers_alone.py finds each kind of missing include, and warnings, and none in a tree without.
. "$(dirname "$0")/test_of_script.sh"
script=alone
alone() { "$(dirname "$0")/headers_alone.py" "$1" clang++-16 -std=c++20 "-I$1/include" -Wall -Wreserved-identifier -Werror; }

# header NAME INCLUDES TEXT: writes a header.
header() {
    { echo '#pragma once' && { [ -z "$2" ] || printf '#include <%s>\n' $2; } && echo "$3"; } >"$tree/include/$1.hpp"
}
mkdir -p "$tree/include"
# As many headers as it wants to find.
for ((i = 0; i < 200; ++i)); do echo '#pragma once' >"$tree/include/h$i.hpp"; done
header base 'cstddef unistd.h' 'struct Base { std::size_t n = sizeof(pid_t); };
struct Later;
template <class T> struct Of { static constexpr int value = 1; };
inline int function() { return 1; }
#define BASE_MACRO 1'
header all 'base.hpp string' 'struct Later { std::string text; };
template <> struct Of<int> { static constexpr int value = 2; };'
header user 'all.hpp string' 'struct User : Base { Later later; std::string text; int n = Of<int>::value + BASE_MACRO + function(); };'
header first 'second.hpp' 'struct First : Second {};'
header second 'base.hpp' 'struct Second { Base base; };'
says accepted "" "a tree in which no include is missing"

# Each of these lacks an include, or has a warning.
header z_class '' 'struct A : Base {};'
header z_declared_class base.hpp 'struct B { Later later; };'
header z_template '' 'constexpr int c = Of<char>::value;'
header z_specialisation base.hpp 'constexpr int d = Of<int>::value;'
header z_function string 'inline int e() { return function(); }'
header z_macro string 'constexpr int f = BASE_MACRO;'
header z_system_header string 'inline auto g() { return getpid(); }'
header z_standard_header string 'using H = std::vector<int>;'
header z_unknown_name string 'using I = std::no_name;'
header z_warning '' 'inline void j() { int unused; }'
header z_reserved '' 'struct _Reserved {};'
# This is right where a file includes the first, not where it includes the second.
header z_cycle '' $'struct K {};\n#include <z_other.hpp>\nstruct M : L {};'
header z_other z_cycle.hpp 'struct L : K {};'
says refused errors "a tree of errors"
for found in z_class.hpp:2:.*error: z_declared_class.hpp:3:.*error: z_template.hpp:2:.*error: z_specialisation.hpp:3:.*error: \
    z_function.hpp:3:.*error: z_macro.hpp:3:.*error: z_system_header.hpp:3:.*error: 'z_standard_header.hpp:3: std::vector needs <vector>' \
    'z_unknown_name.hpp:3: std::no_name is in no list' 'z_warning.hpp:2:.*error: unused' z_reserved.hpp:2:.*error: z_cycle.hpp:4:.*error:; do
    grep -q "$found" "$tree/output" || { echo "not found: $found"; cat "$tree/output"; exit 1; }
done
