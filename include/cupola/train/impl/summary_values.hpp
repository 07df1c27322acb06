// SPDX-License-Identifier: Apache-2.0
//
// Collects the values of a summary from the network's layers and the step's values, under the tutorial's tags.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <cupola/io/summary_sink.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/train/impl/summary_images.hpp>
#include <cupola/train/impl/summary_names.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class SummaryValues {
public:
    explicit SummaryValues(std::span<const LayerInfo> layers) : layers_(layers) {}

    [[nodiscard]] const StepSummary& summary() const { return summary_; }
    void clear() { summary_.clear(); }

    void add_scalar(std::string tag, double value) { summary_.scalars.push_back({std::move(tag), value}); }

    [[gnu::cold]] void add_parameters(std::span<const float> arena, const char* suffix) {
        for (std::size_t r = 0; r < layers_.size(); ++r) {
            for (std::size_t p = 0; p < layers_[r].parameters.count; ++p) {
                if (layers_[r].offsets[p] >= static_cast<std::int64_t>(arena.size()))
                    continue;  // the gradient of a frozen parameter
                add_histogram(text(parameter_tag(layers_, r, p), suffix), parameter(arena, r, p));
            }
        }
    }

    [[gnu::cold]] void add_images(const BatchView& batch, std::int64_t max_images) {
        const Shape& input = layers_.front().input;
        if (shows_as_image(input)) {
            const auto size = static_cast<std::size_t>(input.size());
            const float* const floats = batch.inputs();
            const auto* const bytes = batch.data<std::uint8_t>(input_column);
            if (floats == nullptr && bytes == nullptr) return;  // ids
            for (std::int64_t i = 0; i < std::min(max_images, batch.size); ++i) {
                const std::size_t begin = static_cast<std::size_t>(i) * size;
                PixelImage image{input.height(), input.width(), input.channels(), {}};
                if (bytes != nullptr) {
                    image.pixels.assign(bytes + begin, bytes + begin + size);
                } else {
                    image = sample_image({floats + begin, size}, input);
                }
                summary_.images.push_back({text("images/image/", i), std::move(image)});
            }
        }
    }

    /// The first layer's filters, if they can be shown: later layers do not read the samples.
    [[gnu::cold]] void add_filters(std::span<const float> parameters) {
        for (std::size_t r = 0; r < layers_.size(); ++r) {
            if (layers_[r].parameters.count == 0) continue;
            const Shape& shape = layers_[r].parameters.list[0].shape;
            if (!shows_as_filters(shape)) return;
            summary_.images.push_back(
                {text(layer_tag(layers_, r), "/filters"), filter_grid(parameter(parameters, r, 0), shape)});
            return;
        }
    }

    [[gnu::cold]] void add_activation(std::size_t layer, std::span<const float> values) {
        for (std::size_t r = layer > 0 ? layer - 1 : 0; r <= layer; ++r) {
            if (layers_[r].name.empty() || layers_[r].parameters.count == 0 || activation_layer(layers_, r) != layer)
                continue;
            const std::string tag = layer_tag(layers_, r);
            add_histogram(text(tag, "/activations"), values);
            const double zeros = static_cast<double>(summary_.histograms.back().value.zeros);
            add_scalar(text(tag, "/sparsity"), zeros / static_cast<double>(values.size()));
        }
    }

private:
    [[gnu::cold]] void add_histogram(const std::string& tag, std::span<const float> values) {
        summary_.histograms.push_back({tag, maker_(values)});
        const Histogram& histogram = summary_.histograms.back().value;
        if (histogram.not_finite > 0) add_scalar(text(tag, "/not_finite"), static_cast<double>(histogram.not_finite));
    }

    [[nodiscard]] std::span<const float> parameter(std::span<const float> arena, std::size_t layer,
                                                   std::size_t p) const {
        return arena.subspan(static_cast<std::size_t>(layers_[layer].offsets[p]),
                             static_cast<std::size_t>(layers_[layer].parameters.list[p].shape.size()));
    }

    std::span<const LayerInfo> layers_;
    HistogramMaker maker_;
    StepSummary summary_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
