// SPDX-License-Identifier: Apache-2.0
//
// Converts the samples of a prediction, given as a range of values or a tensor, to the input of a network with one
// input.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/tensor.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Net>
using SamplesOf = TensorView<const InputValue<Net>, std::remove_cv_t<decltype(Net::input)>>;

/// Throws InvalidArgument for a number of values that is not that of whole samples.
template <class Net>
[[nodiscard]] SamplesOf<Net> whole_samples(std::span<const InputValue<Net>> values) {
    constexpr std::int64_t sample = Net::input_shape.size();
    const auto count = static_cast<std::int64_t>(values.size());
    require(count % sample == 0, "samples of this network have ", sample, " values each, and ", count, " were given");
    return {values.data(), count / sample};
}

template <class Net>
[[nodiscard]] BatchView batch_of_samples(const SamplesOf<Net>& samples) {
    static_assert(!Net::valid || count_inputs(Net::layers) == 1,
                  "this network has several inputs: give predict() a BatchView with a column for each");
    const Column input{{input_column, element_type_of<InputValue<Net>>, Net::input_shape}, samples.data()};
    return {samples.batch(), {input}};
}

}}}  // namespace cupola::CUPOLA_ABI::impl
