// SPDX-License-Identifier: Apache-2.0
//
// Two translation units in one program. Compiled with the same flags they share every inline function; compiled for
// different instruction sets (the argument "apart") they share none, for their names differ by the inline namespace.
#include <cstdio>
#include <cstring>

#include "unit.hpp"

int main(int argc, char** argv) {
    const bool apart = argc > 1 && std::strcmp(argv[1], "apart") == 0;
    if (apart && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) {
        std::puts("skipped: this processor has no AVX2");
        return 77;
    }
    const Unit first = first_unit(), second = second_unit();
    std::printf("first: %s, %.17g, %p\nsecond: %s, %.17g, %p\n", first.isa.c_str(), first.sum_of_squares,
                first.function, second.isa.c_str(), second.sum_of_squares, second.function);
    const bool right_sums = first.sum_of_squares == 25'000 && second.sum_of_squares == 25'000;
    const bool shared = first.isa == second.isa && first.function == second.function;
    const bool separate = first.isa != second.isa && first.function != second.function;
    return right_sums && (apart ? separate : shared) ? 0 : 1;
}
