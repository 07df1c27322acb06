// SPDX-License-Identifier: Apache-2.0
//
// The parts of an ONNX graph before they are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/layers/graph_operator.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct OnnxNode {
    std::string name{}, type{};
    std::vector<std::string> inputs{};
    std::string output{};
    std::vector<GraphAttribute> attributes{};
};

/// A tensor of the file: a parameter or a buffer of the network, or a constant.
struct OnnxInitializer {
    std::string name;
    const StoredTensor* stored = nullptr;
    bool is_buffer = false;
    std::int64_t zero_row = -1;
    GraphNumbers constant{};
};

/// An input or an output; its first extent is the batch, which is not in `extents`.
struct OnnxEnd {
    std::string name;
    ElementType type = ElementType::float32;
    Shape extents{};
};

struct OnnxGraph {
    std::vector<OnnxNode> nodes;
    std::vector<OnnxInitializer> initializers;
    std::vector<OnnxEnd> inputs, outputs;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
