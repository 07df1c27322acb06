// SPDX-License-Identifier: Apache-2.0
//
// The devices that the tests of operations and layers run on. The bodies name no device: a backend is tested by adding
// it to this list.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <vector>

#include <cupola/device/host.hpp>

using Devices = std::tuple<cupola::Host>;

/// Options for a device object of `threads` threads, where the device has such a thing.
template <cupola::Device D>
[[nodiscard]] typename D::Options device_options(int threads) {
    typename D::Options options{};
    if constexpr (requires { options.threads; }) options.threads = threads;
    return options;
}

/// The numbers of threads that an operation is tested with.
template <cupola::Device D>
[[nodiscard]] std::vector<int> thread_counts() {
    if constexpr (requires(typename D::Options options) { options.threads; }) {
        return {1, 2};
    } else {
        return {1};
    }
}
