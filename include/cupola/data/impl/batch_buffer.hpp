// SPDX-License-Identifier: Apache-2.0
//
// Memory for one batch, and the ways to fill it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Samples that a thread takes at a time: few enough for an even distribution, enough to make a look-up cheap.
inline constexpr std::int64_t samples_per_piece = 8;

/// The memory of one batch.
class BatchBuffer {
public:
    BatchBuffer() = default;
    BatchBuffer(std::int64_t batch_size, const Columns& columns)
        : columns_(columns), batch_size_(batch_size), memory_(allocate(batch_bytes(columns, batch_size))) {}

    [[nodiscard]] const Columns& columns() const { return columns_; }
    /// Valid until the buffer is moved.
    [[nodiscard]] BatchSpan span() const { return batch_in(memory_.get(), columns_, batch_size_); }
    [[nodiscard]] BatchView view(std::int64_t size) const { return span().view(size); }

private:
    struct Free {
        void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{alignment}); }
    };
    static std::unique_ptr<std::byte[], Free> allocate(std::size_t bytes) {
        void* memory = ::operator new(bytes, std::align_val_t{alignment}, std::nothrow);
        require<OutOfMemory>(memory != nullptr, "a batch needs ", ByteCount{bytes}, ", which could not be allocated");
        return std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(memory));
    }

    Columns columns_;
    std::int64_t batch_size_;
    std::unique_ptr<std::byte[], Free> memory_;
};

/// Calls fill(begin, end) for the pieces of [0, size) on the team of the context. An exception must not leave a thread
/// of the team, so that of the first piece that failed is kept and thrown here.
template <class Context, class Fill>
void fill_with_team(Context& context, std::int64_t size, const Fill& fill) {
    std::mutex mutex;
    std::exception_ptr error;
    std::int64_t failed = size;
    parallel_for(context, (size + samples_per_piece - 1) / samples_per_piece, [&](std::int64_t piece) {
        const std::int64_t begin = piece * samples_per_piece;
        try {
            fill(begin, std::min(size, begin + samples_per_piece));
        } catch (...) {
            const std::scoped_lock lock(mutex);
            if (begin < failed) error = std::current_exception();
            failed = std::min(failed, begin);
        }
    });
    if (error) std::rethrow_exception(error);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
