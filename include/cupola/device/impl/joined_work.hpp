// SPDX-License-Identifier: Apache-2.0
//
// JoinedWork: small pieces of work of one kind that do not depend on each other, collected to be launched as one
// kernel.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Holds one object of any type `Work` that is trivially copyable and has `void launch(const Context&) const`, or
/// `int launch(const Context&) const`, which returns the number of launches. Its memory is kept for the next object.
template <class Context>
class JoinedWork {
public:
    /// Whether work of this type is collected.
    template <class Work>
    [[nodiscard]] bool holds() const {
        return launch_ == &launch_work<Work>;
    }
    /// The collected work of this type; a new object in place of other work, which must have been launched.
    template <class Work>
    [[nodiscard]] Work& collect() {
        static_assert(std::is_trivially_copyable_v<Work> && alignof(Work) <= alignof(std::max_align_t));
        if (!holds<Work>()) {
            if (memory_.size() < sizeof(Work)) memory_.resize(sizeof(Work));
            ::new (static_cast<void*>(memory_.data())) Work();
            launch_ = &launch_work<Work>;
            base_ = nullptr;
            if constexpr (requires { typename Work::Base; }) {
                base_ = &type_mark<typename Work::Base>;
                as_base_ = static_cast<typename Work::Base*>(reinterpret_cast<Work*>(memory_.data()));
            }
        }
        return *std::launder(reinterpret_cast<Work*>(memory_.data()));
    }
    /// The collected work as an object of its base class `Base`, if its type names that as `Work::Base`; null
    /// otherwise.
    template <class Base>
    [[nodiscard]] Base* as() const {
        if (launch_ == nullptr || base_ != &type_mark<Base>) return nullptr;
        return static_cast<Base*>(as_base_);
    }
    /// Launches what is collected. Returns the number of launches.
    int launch(const Context& context) {
        if (launch_ == nullptr) return 0;
        return std::exchange(launch_, nullptr)(context, memory_.data());
    }
    void discard() { launch_ = nullptr; }

private:
    template <class>
    static constexpr char type_mark = 0;
    template <class Work>
    static int launch_work(const Context& context, const std::byte* bytes) {
        const Work& work = *std::launder(reinterpret_cast<const Work*>(bytes));
        if constexpr (std::is_same_v<decltype(work.launch(context)), int>) {
            return work.launch(context);
        } else {
            work.launch(context);
            return 1;
        }
    }

    std::vector<std::byte> memory_;
    int (*launch_)(const Context&, const std::byte*) = nullptr;
    const char* base_ = nullptr;
    void* as_base_ = nullptr;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
