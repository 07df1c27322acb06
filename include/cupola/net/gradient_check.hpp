// SPDX-License-Identifier: Apache-2.0
//
// What `check_gradients` found: per tensor the distance of backward from the differences of forward, and a message per rule
// of the contract that was broken.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

/// How gradients are checked. The defaults suit layers and networks of figures around 1, computed in float.
struct GradientCheckOptions {
    std::int64_t batch = 2;
    /// Of the input, the parameters, the directions and the layer's own random numbers.
    std::uint64_t seed = 1;
    /// Random directions for each tensor.
    int directions = 8;
    /// How far a tensor is moved each way, as a fraction of its own size; 0 for the default, 3e-3 for a layer and 1e-4 for
    /// a network.
    double step = 0;
    /// The norm of (backward - differences) over the norm of the differences, over all directions; 0 for the default,
    /// 3e-3 for a layer and 1e-2 for a network, whose many kinks (of ReLU, of maxima) the differences step over.
    double tolerance = 0;
};

/// The result; true if everything held.
class [[nodiscard]] GradientCheck {
public:
    /// One tensor's gradient: the norm of the difference over the norm of the reference.
    struct Tensor {
        std::string name;
        double error = 0;
    };

    explicit GradientCheck(std::string subject) : subject_(std::move(subject)) {}

    [[nodiscard]] explicit operator bool() const { return failures_.empty(); }
    /// What was checked: "Conv2d<64, 5> on 24 x 24 x 3, batch 2, on Host".
    [[nodiscard]] const std::string& subject() const { return subject_; }
    [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
    /// One message per error; empty if there is none.
    [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

    /// A text for people: the errors of all tensors in one line, or what is wrong, one line each.
    [[nodiscard]] std::string report() const {
        std::string result =
            text(subject_, failures_.empty() ? ": the gradients are right" : ": the gradients are not right");
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

}  // namespace cupola::inline CUPOLA_ABI
