// SPDX-License-Identifier: Apache-2.0
//
// FunctionRef<R(Args...)>: a reference to a callable object, with one type for all of them. Owns nothing: the object
// has to outlive it.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
public:
    /// Refers to nothing.
    FunctionRef() = default;
    template <class F>
        requires(!std::derived_from<std::remove_cvref_t<F>, FunctionRef> &&
                 std::is_object_v<std::remove_reference_t<F>> && std::is_invocable_r_v<R, F&, Args...>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    FunctionRef(F&& function)  // implicit: a parameter of this type takes any callable
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
          call_(&call<std::remove_reference_t<F>>) {}

    /// Whether it refers to something.
    [[nodiscard]] explicit operator bool() const { return call_ != nullptr; }
    R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

private:
    template <class F>
    static R call(void* object, Args... args) {
        return (*static_cast<F*>(object))(std::forward<Args>(args)...);
    }

    void* object_ = nullptr;
    R (*call_)(void*, Args...) = nullptr;
};

}}  // namespace cupola::CUPOLA_ABI
