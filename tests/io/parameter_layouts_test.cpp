// SPDX-License-Identifier: Apache-2.0
//
// The extents and the order that parameters have in files, as they say it (FileLayout), and what says nothing.
#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/flatten_channels_last.hpp>
#include <cupola/layers/group_norm.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/permute.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/layers/reshape.hpp>
#include <cupola/net/sequential.hpp>

namespace {

/// A layer with one parameter of these extents.
template <FileLayout layout, std::int64_t... extents>
struct OneParameter {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape&) {
        return Parameter{.name = "weight", .shape = {extents...}, .layout = layout};
    }
};

struct UnnamedParameter {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape&) { return Parameter{.shape = {3}}; }
    static constexpr Parameters buffers(const Shape&) { return Parameter{.name = "mean", .shape = {3}}; }
};

/// A layer of a user that lists features, and states nothing of their order.
struct OwnList {
    static constexpr ShapeResult output(const Shape& input) { return Shape{input.size()}; }
};

template <class... Modules>
struct LayoutNet : Sequential<Input<2, 2, 3>, Modules...> {};

struct StoredLayout {
    Shape shape;
    std::vector<float> values;
};

/// The parameter `p` of the network in a file; its elements here are 0, 1, ... . What is read back is the same.
template <class N>
StoredLayout stored_layout(std::size_t p = 0) {
    const impl::StoredTensor tensor = impl::stored_tensors(N::layers).parameters.at(p);
    std::vector<float> arena(static_cast<std::size_t>(N::parameter_elements)), values(tensor.size());
    const std::span here = std::span(arena).subspan(static_cast<std::size_t>(tensor.offset), tensor.size());
    std::iota(here.begin(), here.end(), 0.0F);
    impl::to_file(tensor, arena.data(), values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
        CHECK(impl::place_in_arena(tensor, static_cast<std::int64_t>(i)) == static_cast<std::int64_t>(values[i]));
    std::vector<float> back(arena.size());
    impl::from_file(tensor, 0, values, back.data());
    CHECK(back == arena);
    return {tensor.shape, values};
}

using LayoutFloats = std::vector<float>;

LayoutFloats counted_floats(std::size_t count) {
    LayoutFloats values(count);
    std::iota(values.begin(), values.end(), 0.0F);
    return values;
}

}  // namespace

TEST_CASE("a parameter that states nothing is stored as it is, whatever its extents and wherever its layer stands") {
    const StoredLayout image = stored_layout<LayoutNet<OneParameter<FileLayout::as_here, 2, 3, 3, 4>>>();
    CHECK(image.shape == Shape{2, 3, 3, 4});
    CHECK(image.values == counted_floats(72));
    const StoredLayout columns = stored_layout<LayoutNet<Flatten, OneParameter<FileLayout::as_here, 5, 12>>>();
    CHECK(columns.shape == Shape{5, 12});
    CHECK(columns.values == counted_floats(60));
}

TEST_CASE("the weight of a convolution of any number of axes has its channels second in a file") {
    const StoredLayout line = stored_layout<LayoutNet<OneParameter<FileLayout::channels_second, 2, 3, 2>>>();
    CHECK(line.shape == Shape{2, 2, 3});
    CHECK(line.values == LayoutFloats{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11});
    const StoredLayout image = stored_layout<LayoutNet<OneParameter<FileLayout::channels_second, 1, 2, 3, 2>>>();
    CHECK(image.shape == Shape{1, 2, 2, 3});
    CHECK(image.values == LayoutFloats{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
    const StoredLayout matrix = stored_layout<LayoutNet<OneParameter<FileLayout::channels_second, 3, 2>>>();
    CHECK(matrix.shape == Shape{3, 2});
    CHECK(matrix.values == counted_floats(6));
}

TEST_CASE("the weight of a convolution with groups has the input's channels of one group second in a file") {
    const StoredLayout grouped = stored_layout<LayoutNet<Conv2d<4, 1>, Conv2d<2, kernel(1, 3), groups(2)>>>(2);
    CHECK(grouped.shape == Shape{2, 2, 1, 3});
    CHECK(grouped.values == LayoutFloats{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11});
    const StoredLayout each = stored_layout<LayoutNet<Conv2d<6, kernel(2, 1), depthwise>>>();
    CHECK(each.shape == Shape{6, 1, 2, 1});
    CHECK(each.values == counted_floats(12));
}

TEST_CASE("a factor per pixel or per channel has its channels first in a file where it says so") {
    const StoredLayout pixels = stored_layout<LayoutNet<OneParameter<FileLayout::channels_first, 2, 2, 3>>>();
    CHECK(pixels.shape == Shape{3, 2, 2});
    CHECK(pixels.values == LayoutFloats{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
    const StoredLayout channels = stored_layout<LayoutNet<OneParameter<FileLayout::channels_first, 1, 1, 3>>>();
    CHECK(channels.shape == Shape{3, 1, 1});
    CHECK(channels.values == counted_floats(3));
}

TEST_CASE("only what says that its last axis is that of the input takes the order of flattened features") {
    using PerFeature = OneParameter<FileLayout::input_features, 12>;
    const LayoutFloats reordered{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
    CHECK(stored_layout<LayoutNet<Flatten, PerFeature>>().values == reordered);
    CHECK(stored_layout<LayoutNet<Flatten, ReLU, OneParameter<FileLayout::input_features, 1, 12>>>().values ==
          reordered);
    // The channels of an image are in order.
    CHECK(stored_layout<LayoutNet<OneParameter<FileLayout::input_features, 3>>>().values == counted_floats(3));
    // A linear layer of as many features as it reads: its bias is of its own features, which are in order.
    using Square = LayoutNet<Flatten, Linear<12>>;
    CHECK(stored_layout<Square>(0).values[1] == 3);
    CHECK(stored_layout<Square>(1).values == counted_floats(12));
    // Behind a matrix the features are its own.
    CHECK(stored_layout<LayoutNet<Flatten, Linear<12, no_bias>, PerFeature>>(1).values == counted_floats(12));
}

TEST_CASE("the layer that lists an image's features says in which order files have them, whatever is before it") {
    // The features of an image of 2 x 3 pixels with 2 channels; of the columns of a weight, the number here of each in
    // the file, as PyTorch computes them of torch.arange(12).reshape(1, 2, 3, 2).permute(0, 3, 1, 2):
    const auto columns = []<class... Modules>(impl::ModuleList<Modules...>) {
        struct Net : Sequential<Input<2, 3, 2>, Modules..., Linear<1, no_bias>> {};
        return stored_layout<Net>().values;
    };
    const LayoutFloats channels_first{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11};
    CHECK(columns(impl::ModuleList<Flatten>{}) == channels_first);                  // x.flatten(1)
    CHECK(columns(impl::ModuleList<Reshape<-1>>{}) == channels_first);              // x.view(1, -1)
    CHECK(columns(impl::ModuleList<FlattenChannelsLast>{}) == counted_floats(12));  // x.permute(0, 2, 3, 1).flatten(1)
    CHECK(columns(impl::ModuleList<FlattenChannelsLast, ReLU>{}) == counted_floats(12));
    // Columns count what the permuted image lists here, (w, h, c): x.permute(0, 3, 2, 1) and x.permute(0, 1, 3, 2).
    CHECK(columns(impl::ModuleList<Permute<1, 0, 2>, FlattenChannelsLast>{}) == counted_floats(12));
    CHECK(columns(impl::ModuleList<Permute<1, 0, 2>, Flatten>{}) == channels_first);
    // Neither a layer that states nothing nor one of two extents is guessed to be a Flatten.
    CHECK(columns(impl::ModuleList<OwnList>{}) == counted_floats(12));
    CHECK(columns(impl::ModuleList<Reshape<6, 2>, Flatten>{}) == counted_floats(12));
    CHECK(columns(impl::ModuleList<Reshape<6, 2>, Reshape<-1>>{}) == counted_floats(12));
}

TEST_CASE("one group of flattened features has its factors in the order of the file") {
    const LayoutFloats reordered{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
    CHECK(stored_layout<LayoutNet<Flatten, GroupNorm<1>>>().values == reordered);
    CHECK(stored_layout<LayoutNet<Flatten, GroupNorm<1>>>(1).values == reordered);
    CHECK(stored_layout<LayoutNet<FlattenChannelsLast, GroupNorm<4>>>().values == counted_floats(12));
    CHECK(stored_layout<LayoutNet<Flatten, Linear<12, no_bias>, GroupNorm<4>>>(1).values == counted_floats(12));
}

TEST_CASE("a parameter without a name is stored under that of its layer, beside the layer's buffers") {
    using Net = LayoutNet<Named<"block.layer_scale", UnnamedParameter>, UnnamedParameter>;
    const impl::StoredTensors tensors = impl::stored_tensors(Net::layers);
    CHECK(tensors.parameters.at(0).name == "block.layer_scale");
    CHECK(tensors.parameters.at(1).name == "1");
    CHECK(tensors.buffers.at(0).name == "block.layer_scale.mean");
    CHECK(tensors.buffers.at(1).name == "1.mean");
}
