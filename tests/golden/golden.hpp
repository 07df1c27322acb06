// SPDX-License-Identifier: Apache-2.0
//
// The golden figures: small cases that PyTorch computed in double from inputs that are exact floats, and that were then
// rounded. They are in golden.safetensors beside this header, which generate.py writes; its functions say what the tensors
// of each group of cases are. golden.cpp is part of every test program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace golden {

/// One case of a group. What it lacks is a DataError with the names of the file and of the tensor or text.
class Case {
public:
    explicit Case(std::string place) : place_(std::move(place)) {}

    [[nodiscard]] std::string_view name() const;
    [[nodiscard]] std::string_view text(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view tensor) const;
    [[nodiscard]] std::vector<std::int64_t> extents(std::string_view tensor) const;
    /// The elements of a tensor. T is float, double, std::int32_t or std::int64_t.
    template <class T = float>
    [[nodiscard]] std::span<const T> list(std::string_view tensor) const;
    /// The element of a tensor that has one.
    template <class T = float>
    [[nodiscard]] T number(std::string_view tensor) const;

private:
    std::string place_;
};

/// The cases of a group, of which there are some, in their order.
[[nodiscard]] std::vector<Case> cases(std::string_view group);

/// The values of a parameter of a network, and the images of its step: scale * a multiple of 2^-23 in [-1, 1), which is the
/// same in every language.
[[nodiscard]] std::vector<float> uniform(const Case& parameter);
[[nodiscard]] std::vector<float> images(const Case& network, std::int64_t size);

}  // namespace golden
