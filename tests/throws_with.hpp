// SPDX-License-Identifier: Apache-2.0
//
// What an exception says: `message_of<DeviceError>([] { ... })` is its text, so that a test can compare whole sentences
// or look for the parts that matter.
#pragma once

#include <exception>
#include <string>

/// The text of the exception of type `Exception` that `f` throws; a text that says so where it throws none, or another.
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
