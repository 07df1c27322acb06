// SPDX-License-Identifier: Apache-2.0
//
// The devices that the tests of operations and layers run on, and the element types that operations are tested with. The
// bodies name neither: a backend is tested by adding it to these lists.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>

using Devices = std::tuple<cupola::Host>;

/// A device and the element type of the activations on it. A device alone stands for float on it.
template <cupola::Device D, class T>
struct OnDevice {
    using Device = D;
    using Element = T;
};
using DevicesAndElements = std::tuple<OnDevice<cupola::Host, float>, OnDevice<cupola::Host, cupola::BFloat16>>;

namespace devices_impl {
template <class D>
struct Place : OnDevice<D, float> {};
template <class D, class T>
struct Place<OnDevice<D, T>> : OnDevice<D, T> {};
}  // namespace devices_impl

template <class D>
using DeviceOf = typename devices_impl::Place<D>::Device;
template <class D>
using ElementOf = typename devices_impl::Place<D>::Element;

/// Options for a device object of `threads` threads, where the device has such a thing.
template <cupola::Device D>
[[nodiscard]] typename D::Options device_options(int threads) {
    typename D::Options options{};
    if constexpr (requires { options.threads; }) options.threads = threads;
    return options;
}

/// The numbers of threads that an operation is tested with.
template <class D>
[[nodiscard]] std::vector<int> thread_counts() {
    if constexpr (requires(typename DeviceOf<D>::Options options) { options.threads; }) {
        return {1, 2};
    } else {
        return {1};
    }
}
