// SPDX-License-Identifier: Apache-2.0
//
// Whether a test is compiled with AddressSanitizer or ThreadSanitizer, with which it takes ten times as long or more.
// They look for wrong accesses, not for wrong numbers, so fewer steps and fewer combinations are enough for them.
#pragma once

#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitized = __has_feature(thread_sanitizer);
#else
inline constexpr bool thread_sanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = thread_sanitized || __has_feature(address_sanitizer);
#else
inline constexpr bool sanitized = thread_sanitized;
#endif
