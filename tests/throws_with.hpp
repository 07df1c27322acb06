// SPDX-License-Identifier: Apache-2.0
//
// The text of an exception: `message_of<DeviceError>([] { ... })` returns it, so that a test can compare the whole
// message or search for its important parts.
#pragma once

#include "standard.hpp"

/// The text of the exception of type `Exception` that `f` throws; a text about it if `f` throws none, or another.
template <class Exception, class Function>
[[nodiscard]] std::string message_of(Function&& f) {
    try {
        f();
    } catch (const Exception& error) {
        return error.what();
    } catch (const std::exception& error) {
        return std::string("(another exception: ") + error.what() + ")";
    }
    return "(no exception)";
}

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}
