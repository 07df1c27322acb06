// SPDX-License-Identifier: Apache-2.0
//
// FlushedDenormals: during its lifetime the calling thread treats numbers below 1e-38 as zeros, as the threads of
// `Host` do.
#pragma once

#include <cupola/core/abi.hpp>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

#ifdef __SSE__
/// The bits of the control register by which denormals become zeros, as results and as operands.
inline constexpr unsigned denormals_are_zeros = 0x8040U;
#endif

class FlushedDenormals {
public:
    FlushedDenormals();
    FlushedDenormals(const FlushedDenormals&) = delete;
    FlushedDenormals& operator=(const FlushedDenormals&) = delete;
    ~FlushedDenormals();

private:
    [[maybe_unused]] unsigned before_ = 0;
};

#ifdef __SSE__
inline FlushedDenormals::FlushedDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | denormals_are_zeros); }
inline FlushedDenormals::~FlushedDenormals() { _mm_setcsr(before_); }
#else
inline FlushedDenormals::FlushedDenormals() = default;
inline FlushedDenormals::~FlushedDenormals() = default;
#endif

}}}  // namespace cupola::CUPOLA_ABI::impl
