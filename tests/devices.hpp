// SPDX-License-Identifier: Apache-2.0
//
// The devices that the tests of operations and layers run on, and the element types that operations are tested with.
// The test bodies name no device: a backend is tested by adding it to these lists, with the headers that its users
// include. Cuda has separate lists, where CUPOLA_TEST_CUDA is defined: nvcc compiles the same files for it (gpu/), without
// the cases that apply only to Host.
#pragma once

#include "sanitized.hpp"
#include "test.hpp"

#include <cupola/core/element_type.hpp>
#ifdef CUPOLA_TEST_CUDA
#include <cupola/cuda.hpp>

#include "case_listener.hpp"

using Devices = std::tuple<cupola::Cuda>;
#else
#include <cupola/host.hpp>

using Devices = std::tuple<cupola::Host>;
#endif

/// For what holds on each.
using AnyDevice = std::tuple_element_t<0, Devices>;

/// A device and the element type of the activations on it. A device alone stands for float on it.
template <cupola::Device D, class T>
struct DeviceAndElement {
    using Device = D;
    using Element = T;
};
/// Whether the tests run in the emulator of Cuda, where some take minutes.
#if defined(CUPOLA_TEST_CUDA) && !defined(__CUDACC__)
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif
#ifdef CUPOLA_TEST_CUDA
#ifdef __CUDACC__
using DevicesAndElements =
    std::tuple<DeviceAndElement<cupola::Cuda, float>, DeviceAndElement<cupola::Cuda, cupola::BFloat16>,
               DeviceAndElement<cupola::Cuda, cupola::Float16>>;
#else
// Both types of 16 bits have the same kernels but for the conversions. On the emulator the operations are tested with
// one of them and the layers, which run the same operations, with the other: a third less to compile and to run.
template <bool layers>
using EmulatedElements =
    std::tuple<DeviceAndElement<cupola::Cuda, float>,
               DeviceAndElement<cupola::Cuda, std::conditional_t<layers, cupola::Float16, cupola::BFloat16>>>;
/// The element types of the test file that names them.
#define DevicesAndElements EmulatedElements<std::string_view(__FILE__).find("tests/layers/") != std::string_view::npos>
#endif
/// The element types that are narrower than float.
using NarrowElements = std::tuple<cupola::BFloat16, cupola::Float16>;
#else
using DevicesAndElements =
    std::tuple<DeviceAndElement<cupola::Host, float>, DeviceAndElement<cupola::Host, cupola::BFloat16>>;
using NarrowElements = std::tuple<cupola::BFloat16>;
#endif

namespace devices_impl {
template <class D>
struct Place : DeviceAndElement<D, float> {};
template <class D, class T>
struct Place<DeviceAndElement<D, T>> : DeviceAndElement<D, T> {};
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
    // Tests compare bits of two runs.
    if constexpr (requires { options.deterministic; }) options.deterministic = true;
    if constexpr (requires { options.plan_seconds; }) options.plan_seconds = 0;
    // A library takes about 10 ms to rank the algorithms of an operation: once per program.
    if constexpr (requires { options.plan_choices; }) {
        static const auto choices = options.plan_choices;
        options.plan_choices = choices;
    }
    return options;
}

/// The context of a test case: each call in a case returns the same where a device has handles of libraries, which take
/// longer to make than most runs of an operation, and a new one where `threads` is a property of a context.
template <cupola::Device D>
class CaseContext {
public:
    explicit CaseContext(int threads) {
        if constexpr (is_shared) {
            std::unique_ptr<typename D::Context>& shared = of_case();
            if (shared == nullptr) shared = std::make_unique<typename D::Context>(0, device_options<D>(threads));
            context_ = shared.get();
        } else {
            own_ = std::make_unique<typename D::Context>(0, device_options<D>(threads));
            context_ = own_.get();
        }
    }
    [[nodiscard]] typename D::Context& get() const { return *context_; }

    static constexpr bool is_shared = !requires(typename D::Options options) { options.threads; };
    [[nodiscard]] static std::unique_ptr<typename D::Context>& of_case() {
        static std::unique_ptr<typename D::Context> context;
        return context;
    }

private:
    std::unique_ptr<typename D::Context> own_;
    typename D::Context* context_ = nullptr;
};

#ifdef CUPOLA_TEST_CUDA
namespace devices_impl {
/// Ends the context of each case. Before the emulator's listener, which checks that no memory is left.
struct EndOfCase : CaseListener {
    using CaseListener::CaseListener;
    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        CaseContext<cupola::Cuda>::of_case() = nullptr;
    }
};
REGISTER_LISTENER("context_of_case", 3, EndOfCase);
}  // namespace devices_impl
#endif

/// The numbers of threads that an operation is tested with.
template <class D>
[[nodiscard]] std::vector<int> thread_counts() {
    if constexpr (requires(typename DeviceOf<D>::Options options) { options.threads; }) {
        return sanitized ? std::vector<int>{2} : std::vector<int>{1, 2};
    } else {
        return {1};
    }
}
