// SPDX-License-Identifier: Apache-2.0
//
// ConcatMean on `Host`: each thread of the device averages one block of the columns.
#pragma once

#include <cstdint>
#include <span>

#include <cupola/device/host.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

void concat_mean(const HostContext& context, const GradientRows& gradients, std::span<float> mean);

inline void concat_mean(const HostContext& context, const GradientRows& gradients, std::span<float> mean) {
    for_each_block(context, gradients.columns, [&, to = mean.data()](std::int64_t begin, std::int64_t end) {
        impl::mean_of_columns(gradients, to, begin, end);
    });
}

}}  // namespace cupola::CUPOLA_ABI
