// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousProcesses: what an asynchronous training in several processes of one machine needs of them, without the
// type of their engine. processes/shared_centre.hpp has those of every engine.
#pragma once

#include <cstddef>
#include <exception>

#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class AsynchronousProcesses {
public:
    AsynchronousProcesses() = default;
    AsynchronousProcesses(const AsynchronousProcesses&) = delete;
    AsynchronousProcesses& operator=(const AsynchronousProcesses&) = delete;
    virtual ~AsynchronousProcesses() = default;

    /// At least `bytes` bytes, 0 at first, that all processes read and write. Called once, by all. Throws
    /// InvalidArgument if they cannot share memory.
    [[nodiscard]] virtual std::byte* share(std::size_t bytes) = 0;
    /// As Processes::wait(): returns when `is_done()` returns true; on any thread.
    virtual void wait(const ExchangeName& name, FunctionRef<bool()> is_done, FunctionRef<bool(int)> waits_for) = 0;
    /// As ProcessGroup::gather().
    virtual void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) = 0;

    /// An error in a form that processes share, in `error_bytes` bytes; and the same in another process.
    static constexpr std::size_t error_bytes = 512;
    virtual void write_error(const std::exception_ptr& error, std::byte* to) const = 0;
    [[nodiscard]] virtual std::exception_ptr read_error(const std::byte* from, int process) const = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
