// SPDX-License-Identifier: Apache-2.0
//
// ConstantsWriter: where the constants of an update are written for a device that reads them in a repeated step.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <cupola/core/function_ref.hpp>
#include <cupola/core/type_name.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `write(k)` is called once per constant, in the order in which the update uses them.
class ConstantsWriter {
public:
    /// `to` is called with the name of each constant's type and its bytes.
    explicit ConstantsWriter(FunctionRef<void(std::string_view type, std::span<const std::byte> bytes)> to) : to_(to) {}

    template <class K>
    void write(const K& k) {
        to_(type_name<K>(), std::as_bytes(std::span(&k, 1)));
    }

private:
    FunctionRef<void(std::string_view, std::span<const std::byte>)> to_;
};

}}  // namespace cupola::CUPOLA_ABI
