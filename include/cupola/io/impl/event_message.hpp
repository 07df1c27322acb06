// SPDX-License-Identifier: Apache-2.0
//
// TensorBoard's events as protocol buffers. The field numbers are those of TensorFlow's event.proto, summary.proto,
// histogram.proto, tensor.proto and tensor_shape.proto. Scalars, images and histograms are in the form that every
// version of TensorBoard reads; text has only one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/png.hpp>
#include <cupola/io/summary_sink.hpp>
#include <protozero/pbf_writer.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline std::string begun_event(double wall_time, std::int64_t step) {
    std::string result;
    protozero::pbf_writer writer(result);
    writer.add_double(1, wall_time);
    if (step != 0) writer.add_int64(2, step);
    return result;
}

[[nodiscard]] inline std::string file_version_event(double wall_time) {
    std::string result = begun_event(wall_time, 0);
    protozero::pbf_writer(result).add_string(3, "brain.Event:2");
    return result;
}

/// The text with U+FFFD for each byte that is not UTF-8: readers of protobuf refuse a message with one.
[[nodiscard]] inline std::string utf8_text(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        result += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return result;
}

/// SessionLog.START: TensorBoard drops what it has read of this step and of later ones.
[[nodiscard]] inline std::string session_start_event(double wall_time, std::int64_t step) {
    std::string result = begun_event(wall_time, step);
    protozero::pbf_writer writer(result);
    protozero::pbf_writer log(writer, 7);
    log.add_enum(1, 1);
    return result;
}

inline void add_value(protozero::pbf_writer& value, double scalar) { value.add_float(2, static_cast<float>(scalar)); }

inline void add_value(protozero::pbf_writer& value, const PixelImage& image) {
    const auto png = encode_png(image.pixels, image.height, image.width, image.channels);
    protozero::pbf_writer message(value, 4);
    message.add_int32(1, static_cast<std::int32_t>(image.height));
    message.add_int32(2, static_cast<std::int32_t>(image.width));
    message.add_int32(3, static_cast<std::int32_t>(image.channels));
    message.add_bytes(4, reinterpret_cast<const char*>(png.data()), png.size());
}

inline void add_value(protozero::pbf_writer& value, const Histogram& histogram) {
    protozero::pbf_writer message(value, 5);
    message.add_double(1, histogram.minimum);
    message.add_double(2, histogram.maximum);
    message.add_double(3, static_cast<double>(histogram.count));
    message.add_double(4, histogram.sum);
    message.add_double(5, histogram.sum_of_squares);
    message.add_packed_double(6, histogram.limits.begin(), histogram.limits.end());
    message.add_packed_double(7, histogram.counts.begin(), histogram.counts.end());
}

/// A tensor of one string, for the text plugin.
inline void add_value(protozero::pbf_writer& value, const std::string& markdown) {
    {
        protozero::pbf_writer tensor(value, 8);
        tensor.add_enum(1, 7);  // DT_STRING
        {
            protozero::pbf_writer shape(tensor, 2);
            protozero::pbf_writer extent(shape, 2);
            extent.add_int64(1, 1);
        }
        tensor.add_bytes(8, utf8_text(markdown));
    }
    protozero::pbf_writer metadata(value, 9);
    protozero::pbf_writer plugin(metadata, 1);
    plugin.add_string(1, "text");
}

template <class Value>
void add_values(protozero::pbf_writer& summary, const std::vector<Tagged<Value>>& values) {
    for (const auto& [tag, content] : values) {
        protozero::pbf_writer value(summary, 1);
        value.add_string(1, utf8_text(tag));
        add_value(value, content);
    }
}

[[nodiscard]] inline std::string summary_event(double wall_time, std::int64_t step, const StepSummary& values) {
    std::string result = begun_event(wall_time, step);
    protozero::pbf_writer writer(result);
    protozero::pbf_writer summary(writer, 5);
    add_values(summary, values.scalars);
    add_values(summary, values.histograms);
    add_values(summary, values.images);
    add_values(summary, values.texts);
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
