// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of groups of channels within a sample (Wu, He 2018). The group of an element is its sample's part of
// channels / groups neighbouring channels, at all `positions`:
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight[c] + bias[c]
//
// with the mean and the (biased) variance of the group; without `centred` the mean is 0, and the variance the mean of
// the squares. Layer normalisation (Ba, Kiros, Hinton 2016) and RMS normalisation (Zhang, Sennrich 2019) have one
// position and one group: each position of an image is then a sample. Instance normalisation has a group per channel.
// Parameters: 0 the weight, 1 the bias; each may be absent.
//
// Sums are in double and variances are of the differences from the mean, so a mean that is large beside the deviation
// costs no digits. In training the mean and the factor of each group are kept for backward.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/operation.hpp>
#include <cupola/ops/rows.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Positions and channels must be below 2^31, and `groups` must divide the channels.
struct GroupNormShape {
    std::int64_t positions = 1, channels = 0, groups = 1;
    double epsilon = 1e-5;
    bool centred = true;
};

namespace impl {

/// The mean of a group, and 1 / sqrt(variance + epsilon).
struct GroupMoments {
    double mean = 0, factor = 0;

    [[nodiscard]] CUPOLA_HOST_DEVICE double normalized(double x) const { return (x - mean) * factor; }
};

/// The places of the elements of groups. Group n of a batch is that of sample n / groups.
struct GroupPlaces {
    GroupPlaces() = default;
    explicit GroupPlaces(const GroupNormShape& s)
        : positions(s.positions),
          channels(s.channels),
          groups(s.groups),
          of_group(s.channels / s.groups),
          by_positions(s.positions),
          by_groups(s.groups),
          by_channels(of_group) {}

    std::int64_t positions = 1, channels = 1, groups = 1, of_group = 1;
    Divisor by_positions, by_groups, by_channels;

    /// The number of elements of a group.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t width() const { return positions * of_group; }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t first_channel(std::int64_t n) const {
        return by_groups.divide(n).remainder * of_group;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t first_element(std::int64_t n) const {
        return by_groups.divide(n).quotient * positions * channels + first_channel(n);
    }
    /// The group of channel c at position `row` of the batch.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t group(std::int64_t row, std::int64_t c) const {
        if (groups == 1) return by_positions.divide(row).quotient;
        return by_positions.divide(row).quotient * groups + by_channels.divide(c).quotient;
    }
};

/// An element of a group: its distance from the group's first, and the distance of its channel from the group's first.
struct GroupElement {
    std::int64_t offset, channel;
};
/// Element i of a group. With `one_position` the elements of a group lie side by side.
template <bool one_position>
[[nodiscard]] CUPOLA_HOST_DEVICE GroupElement group_element(const GroupPlaces& places, std::int64_t i) {
    if constexpr (one_position) {
        return {i, i};
    } else {
        const Divisor::Parts at = places.by_channels.divide(i);
        return {at.quotient * places.channels + at.remainder, at.remainder};
    }
}

/// The formula of a group (ops/rows.hpp) in forward. `moments` is null outside training.
template <class T, bool one_position>
struct GroupNormForward {
    GroupPlaces places;
    double epsilon;
    bool centred;
    const T* x;
    T* y;
    const float *weight, *bias;
    GroupMoments* moments;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(places.width()), first = places.first_element(n);
        const std::int64_t channel = places.first_channel(n);
        const auto size = static_cast<double>(places.width());
        const auto value = [&](std::int64_t i) {
            const GroupElement e = group_element<one_position>(places, i);
            return static_cast<double>(static_cast<float>(x[first + e.offset]));
        };
        GroupMoments m;
        if (centred) m.mean = sum_of_row(lanes, count, value) / size;
        const auto square = [&](std::int64_t i) {
            const double difference = value(i) - m.mean;
            return difference * difference;
        };
        m.factor = 1.0 / std::sqrt(sum_of_row(lanes, count, square) / size + epsilon);
        if (moments != nullptr && lanes.first()) moments[n] = m;
        for (std::int64_t i = lanes.begin(); i < count; i += Lanes::step) {
            const GroupElement e = group_element<one_position>(places, i);
            const std::int64_t c = channel + e.channel;
            double result = m.normalized(static_cast<double>(static_cast<float>(x[first + e.offset])));
            if (weight != nullptr) result *= static_cast<double>(weight[c]);
            if (bias != nullptr) result += static_cast<double>(bias[c]);
            y[first + e.offset] = T(static_cast<float>(result));
        }
    }
};

/// The same in backward, with g = dy weight and h the normalised x:
/// dx = factor (g - the mean of g - h * the mean of g h); without `centred` the mean of g is not subtracted.
template <class T, bool one_position>
struct GroupNormBackward {
    GroupPlaces places;
    bool centred;
    const T *x, *dy;
    T* dx;
    const float* weight;
    const GroupMoments* moments;

    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {
        const std::int64_t count = lanes.count(places.width()), first = places.first_element(n);
        const std::int64_t channel = places.first_channel(n);
        const auto size = static_cast<double>(places.width());
        const GroupMoments m = lanes.exists() ? moments[n] : GroupMoments{};
        const auto gradient = [&](std::int64_t i) {
            const GroupElement e = group_element<one_position>(places, i);
            const auto g = static_cast<double>(static_cast<float>(dy[first + e.offset]));
            return weight == nullptr ? g : g * static_cast<double>(weight[channel + e.channel]);
        };
        const auto normalized = [&](std::int64_t i) {
            const GroupElement e = group_element<one_position>(places, i);
            return m.normalized(static_cast<double>(static_cast<float>(x[first + e.offset])));
        };
        const double mean = centred ? sum_of_row(lanes, count, gradient) / size : 0.0;
        const auto product = [&](std::int64_t i) { return gradient(i) * normalized(i); };
        const double along = sum_of_row(lanes, count, product) / size;
        for (std::int64_t i = lanes.begin(); i < count; i += Lanes::step) {
            const double result = m.factor * (gradient(i) - mean - normalized(i) * along);
            dx[first + group_element<one_position>(places, i).offset] = T(static_cast<float>(result));
        }
    }
};

/// The terms of a parameter's gradient (sum_columns in ops/rows.hpp): dy of the bias, and dy * normalised x of the
/// weight. The gradient before is a term of the first row where it is not null.
template <class T, bool of_weight>
struct GroupNormGradient {
    GroupPlaces places;
    const T *x, *dy;
    const GroupMoments* moments;
    const float* before;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t row, std::int64_t c) const {
        const std::int64_t i = row * places.channels + c;
        auto term = static_cast<double>(static_cast<float>(dy[i]));
        if constexpr (of_weight)
            term *= moments[places.group(row, c)].normalized(static_cast<double>(static_cast<float>(x[i])));
        return before != nullptr && row == 0 ? term + static_cast<double>(before[c]) : term;
    }
};

}  // namespace impl

namespace ops {

/// Made as `GroupNorm(build, shape)`; defined for every device with rows (ops/rows.hpp).
template <class Device, class T>
class GroupNorm;

template <class Device, class T>
    requires(ComputesElements<Device, T> && ComputesRows<Device>)
class GroupNorm<Device, T> {
public:
    GroupNorm(const BuildContext<Device, T>& build, const GroupNormShape& shape)
        : places_(shape),
          epsilon_(shape.epsilon),
          centred_(shape.centred),
          training_(build.training),
          rows_(build.batch * build.input.size() / shape.channels) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = training_ ? static_cast<std::size_t>(groups()) * sizeof(impl::GroupMoments) : 0};
    }

    void forward(const ForwardArgs<Device, T>& args) const {
        if (places_.positions == 1) {
            forward_rows<true>(args);
        } else {
            forward_rows<false>(args);
        }
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        add_terms<true>(args, args.parameter_gradients[0]);
        add_terms<false>(args, args.parameter_gradients[1]);
        if (args.input_gradient == nullptr) return;
        if (places_.positions == 1) {
            backward_rows<true>(args);
        } else {
            backward_rows<false>(args);
        }
    }

private:
    [[nodiscard]] std::int64_t groups() const { return rows_ / places_.positions * places_.groups; }
    [[nodiscard]] static impl::GroupMoments* moments_of(const ForwardArgs<Device, T>& args) {
        return reinterpret_cast<impl::GroupMoments*>(args.saved);
    }

    template <bool one_position>
    void forward_rows(const ForwardArgs<Device, T>& args) const {
        for_each_row(args.context, groups(), places_.width(),
                     impl::GroupNormForward<T, one_position>{places_, epsilon_, centred_, args.input, args.output,
                                                             args.parameters[0], args.parameters[1],
                                                             training_ ? moments_of(args) : nullptr});
    }
    template <bool one_position>
    void backward_rows(const BackwardArgs<Device, T>& args) const {
        for_each_row(
            args.context, groups(), places_.width(),
            impl::GroupNormBackward<T, one_position>{places_, centred_, args.input, args.output_gradient,
                                                     args.input_gradient, args.parameters[0], moments_of(args)});
    }
    template <bool of_weight>
    void add_terms(const BackwardArgs<Device, T>& args, float* to) const {
        if (to == nullptr) return;
        sum_columns(args.context, rows_, places_.channels,
                    impl::GroupNormGradient<T, of_weight>{places_, args.input, args.output_gradient, moments_of(args),
                                                          args.accumulate ? to : nullptr},
                    to);
    }

    impl::GroupPlaces places_;
    double epsilon_;
    bool centred_, training_;
    std::int64_t rows_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
