// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/parallel/replicas/device_threads.hpp.
#pragma once

#include <cupola/device/processors.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL DeviceThreads::DeviceThreads(int devices)
    : errors_(static_cast<std::size_t>(devices)),
      edge_(devices + 1),
      inside_(devices),
      process_(getpid()),
      threads_(errors_.size()) {
    // A thread of a device, which starts those of further ones, may be bound to its own processors.
    const ProcessorSet processors = processor_set();
    int started = 0;
    try {
        for (; started < devices; ++started) {
            threads_[static_cast<std::size_t>(started)] = Thread(
                {.what = "devices", .started = started, .wanted = devices}, [this, processors, device = started] {
                    use_processors(processors);
                    work(device);
                });
        }
    } catch (const Error& error) {
        edge_.leave_out(devices - started);
        stop();
        throw DeviceError(error.what());
    }
}

CUPOLA_DECL DeviceThreads::~DeviceThreads() { stop(); }

CUPOLA_DECL void DeviceThreads::post(FunctionRef<void(int device)> job) {
    job_ = job;
    edge_.arrive_and_wait();
}

CUPOLA_DECL void DeviceThreads::wait() {
    edge_.arrive_and_wait();
    std::exception_ptr first;
    for (std::exception_ptr& error : errors_) {
        std::exception_ptr taken = std::exchange(error, nullptr);
        if (!first) first = std::move(taken);
    }
    if (first) std::rethrow_exception(first);
}

CUPOLA_DECL void DeviceThreads::stop() {
    if (!has_threads()) {
        for (Thread& thread : threads_) thread.detach();
        return;
    }
    job_ = {};
    edge_.arrive_and_wait();
    for (Thread& thread : threads_) thread.join();
}

CUPOLA_DECL void DeviceThreads::work(int device) {
    for (;;) {
        edge_.arrive_and_wait();
        if (!job_) return;
        try {
            job_(device);
        } catch (...) {
            errors_[static_cast<std::size_t>(device)] = std::current_exception();
        }
        edge_.arrive_and_wait();
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
