// SPDX-License-Identifier: Apache-2.0
//
// FlattenChannelsLast: the same view as Flatten, of whose features files have the same order as here. It says which
// network of PyTorch's the file is of, since weights that read the features have their columns in PyTorch's order:
//
//   Flatten                                x.flatten(1)                          columns (c, h, w)
//   FlattenChannelsLast                    x.permute(0, 2, 3, 1).flatten(1)      columns (h, w, c)
//   Permute<1, 0, 2>, Flatten              x.permute(0, 1, 3, 2).flatten(1)      columns (c, w, h)
//   Permute<1, 0, 2>, FlattenChannelsLast  x.permute(0, 3, 2, 1).flatten(1)      columns (w, h, c)
//
// Both put the last extent of their input first in a file, or leave it last: what the layers before it are does not
// matter. So do Reshape<-1>, which is Flatten in this, and all layers that keep each feature in its place.
#pragma once

#include <cupola/layers/flatten.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct FlattenChannelsLast : Flatten {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};

    static constexpr GraphOperators onnx(const Shape& input) {
        if (input.rank != 3) return GraphOperator("Flatten");
        return {graph_channels_last(), GraphOperator("Flatten")};
    }
};

}}  // namespace cupola::CUPOLA_ABI
