// SPDX-License-Identifier: Apache-2.0
//
// Memory that a transform needs for one sample. The thread keeps it for the next, so that it allocates nothing once it
// has seen the largest sample.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `size` elements of unspecified values.
template <class T>
class Scratch {
public:
    explicit Scratch(std::size_t size) : size_(size) {
        if (std::vector<std::vector<T>>* const free = kept(); free != nullptr && !free->empty()) {
            memory_ = std::move(free->back());
            free->pop_back();
        }
        if (memory_.size() < size) memory_ = std::vector<T>(size);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    Scratch(Scratch&& other) noexcept
        : memory_(std::exchange(other.memory_, {})), size_(std::exchange(other.size_, 0)) {}
    Scratch& operator=(Scratch&&) = delete;
    ~Scratch() {
        std::vector<std::vector<T>>* const free = kept();
        if (free != nullptr && !memory_.empty() && free->size() < free->capacity()) free->push_back(std::move(memory_));
    }

    [[nodiscard]] T* data() { return memory_.data(); }
    [[nodiscard]] const T* data() const { return memory_.data(); }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T* begin() { return data(); }
    [[nodiscard]] T* end() { return data() + size_; }
    [[nodiscard]] T& operator[](std::size_t i) { return memory_[i]; }
    [[nodiscard]] const T& operator[](std::size_t i) const { return memory_[i]; }

private:
    /// The memory of the calling thread that is not in use; null once the thread has ended, for an object that outlives
    /// it, as a static one does.
    [[nodiscard]] static std::vector<std::vector<T>>* kept() {
        static thread_local bool has_ended = false;
        struct Kept {
            std::vector<std::vector<T>> free;
            Kept() { free.reserve(max_kept); }
            Kept(const Kept&) = delete;
            Kept& operator=(const Kept&) = delete;
            ~Kept() { has_ended = true; }
        };
        if (has_ended) return nullptr;
        static thread_local Kept kept;
        return &kept.free;
    }
    static constexpr std::size_t max_kept = 8;

    std::vector<T> memory_{};
    std::size_t size_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
