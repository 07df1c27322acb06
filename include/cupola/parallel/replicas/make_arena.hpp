// SPDX-License-Identifier: Apache-2.0
//
// MakeArena: how a device gets the memory of its arrays, which may be in the memory of several devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/function_ref.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a row of an array has an element of: each parameter; each one that is trained; each running statistic.
enum class RowOf : std::uint8_t { parameters, trained, buffers };

/// Makes the memory of an array of such rows, `bytes` bytes of which may be none; `what` names it in an error.
template <class Device>
using MakeArena = FunctionRef<typename Device::Arena(std::size_t bytes, RowOf rows, std::string_view what)>;

}}}  // namespace cupola::CUPOLA_ABI::impl
