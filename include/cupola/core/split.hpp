// SPDX-License-Identifier: Apache-2.0
//
// Split<Data>: a data set in two (data/split.hpp). Split<Net, parts>: a network in parts (net/pipeline/split.hpp).
#pragma once

#include <cstddef>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class T, std::size_t... parts>
struct Split;

}}  // namespace cupola::CUPOLA_ABI
