// SPDX-License-Identifier: Apache-2.0
//
// average_columns (parallel/averaging.hpp) on `Host`, for ConcatMean and policies like it: each thread of the device
// averages one block of the columns.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/device/host.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Columns>
void average_columns(const HostContext& context, std::string_view, const GradientRows& gradients, std::span<float> mean,
                     const Columns& columns) {
    for_each_block(context, gradients.columns,
                   [&, to = mean.data()](std::int64_t begin, std::int64_t end) { columns(gradients, to, begin, end); });
}

}}  // namespace cupola::CUPOLA_ABI
