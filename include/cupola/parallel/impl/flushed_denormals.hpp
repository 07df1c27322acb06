// SPDX-License-Identifier: Apache-2.0
//
// FlushedDenormals: during its lifetime the calling thread treats numbers below 1e-38 as zeros, as the threads of `Host`
// do.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class FlushedDenormals {
public:
#if defined(__SSE__)
    FlushedDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }
    ~FlushedDenormals() { _mm_setcsr(before_); }
#else
    FlushedDenormals() = default;
#endif
    FlushedDenormals(const FlushedDenormals&) = delete;
    FlushedDenormals& operator=(const FlushedDenormals&) = delete;

private:
    [[maybe_unused]] unsigned before_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
