// SPDX-License-Identifier: Apache-2.0
//
// Whether this processor has the instructions that operations in bfloat16 need. Without them the operations throw (which
// is tested), and the test cases of BFloat16 are left out.
#pragma once

[[nodiscard]] inline bool computes_bfloat16() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return false;
#endif
}
