// SPDX-License-Identifier: Apache-2.0
//
// The result of `check_gradients`: per tensor, the distance between backward's gradient and the differences of forward,
// and a message per broken rule of the contract.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// How gradients are checked. The defaults suit layers and networks with values around 1, computed in float.
struct GradientCheckOptions {
    std::int64_t batch = 2;
    /// The seed of the input, the parameters, the directions and the layer's own random numbers.
    std::uint64_t seed = 1;
    /// Random directions per tensor.
    int directions = 8;
    /// How far a tensor is moved each way, as a fraction of its root mean square; 0 for the default, 3e-3 for a layer
    /// and 1e-4 for a network. Where the differences do not agree with backward, shorter steps, down to a hundredth of
    /// it, are tried before the gradient is called wrong.
    double step = 0;
    /// The largest allowed norm of (backward - differences) relative to the norm of the differences, over all
    /// directions; 0 for the default, 3e-3 for a layer and 1e-2 for a network, where the differences cross many kinks
    /// (of ReLU, of maxima).
    double tolerance = 0;
};

/// The result; converts to true if all checks passed.
class [[nodiscard]] GradientCheck {
public:
    /// One tensor's gradient: the norm of the difference over the norm of the reference.
    struct Tensor {
        std::string name;
        double error = 0;
    };

    explicit GradientCheck(std::string subject) : subject_(std::move(subject)) {}

    [[nodiscard]] explicit operator bool() const { return failures_.empty(); }
    /// The subject of the check: "Conv2d<64, 5> on 24 x 24 x 3, batch 2, on Host".
    [[nodiscard]] const std::string& subject() const { return subject_; }
    [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
    /// One message per error; empty if there is none.
    [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

    /// A readable text: the errors of all tensors in one line, or one line per failed check.
    [[nodiscard]] std::string report() const {
        std::string result =
            text(subject_, failures_.empty() ? ": the gradients are correct" : ": the gradients are not correct");
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            result += text(i == 0 ? " (off by: " : "; ", tensors_[i].name, " ", tensors_[i].error);
        }
        if (!tensors_.empty()) result += ")";
        for (const std::string& failure : failures_) result += text("\n  ", failure);
        return result;
    }

    void add(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
    void fail(std::string message) { failures_.push_back(std::move(message)); }

private:
    std::string subject_;
    std::vector<Tensor> tensors_;
    std::vector<std::string> failures_;
};

}}  // namespace cupola::CUPOLA_ABI
