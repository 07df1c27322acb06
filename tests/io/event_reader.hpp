// SPDX-License-Identifier: Apache-2.0
//
// Reads event files back, for tests only: each record's checksums are checked, and its protocol buffer is parsed.
#pragma once

#include "../test.hpp"

#include <cupola/io/crc32c.hpp>
#include <cupola/io/histogram.hpp>
#include <protozero/pbf_reader.hpp>

namespace cupola_tests {

struct EventImage {
    std::int64_t height = 0, width = 0, colorspace = 0;
    std::string png;
};

struct ReadEvent {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string file_version;
    bool session_start = false;
    std::map<std::string, float> scalars;
    std::map<std::string, cupola::Histogram> histograms;
    std::map<std::string, EventImage> images;
    std::map<std::string, std::string> texts;
};

/// The data of each record of a file in TensorFlow's framing.
inline std::vector<std::string> read_records(std::string_view file) {
    std::vector<std::string> result;
    const auto checked = [&](std::size_t size) {
        REQUIRE(file.size() >= size + 4);
        const std::string_view data = file.substr(0, size);
        std::uint32_t checksum = 0;
        std::memcpy(&checksum, file.data() + size, sizeof checksum);
        CHECK(checksum == cupola::masked_crc32c(std::as_bytes(std::span(data))));
        file.remove_prefix(size + 4);
        return data;
    };
    while (!file.empty()) {
        std::uint64_t length = 0;
        std::memcpy(&length, checked(sizeof length).data(), sizeof length);
        result.emplace_back(checked(length));
    }
    return result;
}

inline EventImage read_image(protozero::pbf_reader message) {
    EventImage result;
    while (message.next()) {
        switch (message.tag()) {
            case 1: result.height = message.get_int32(); break;
            case 2: result.width = message.get_int32(); break;
            case 3: result.colorspace = message.get_int32(); break;
            case 4: result.png = message.get_bytes(); break;
            default: FAIL("an image has no field ", message.tag());
        }
    }
    return result;
}

inline cupola::Histogram read_histogram(protozero::pbf_reader message) {
    cupola::Histogram result;
    while (message.next()) {
        switch (message.tag()) {
            case 1: result.minimum = message.get_double(); break;
            case 2: result.maximum = message.get_double(); break;
            case 3: result.count = static_cast<std::int64_t>(message.get_double()); break;
            case 4: result.sum = message.get_double(); break;
            case 5: result.sum_of_squares = message.get_double(); break;
            case 6:
                for (const double limit : message.get_packed_double()) result.limits.push_back(limit);
                break;
            case 7:
                for (const double count : message.get_packed_double()) result.counts.push_back(count);
                break;
            default: FAIL("a histogram has no field ", message.tag());
        }
    }
    return result;
}

/// The one string of a tensor of strings.
inline std::string read_text(protozero::pbf_reader tensor) {
    std::string result;
    while (tensor.next()) {
        switch (tensor.tag()) {
            case 1: CHECK(tensor.get_enum() == 7); break;
            case 8: result = tensor.get_bytes(); break;
            default: tensor.skip();
        }
    }
    return result;
}

inline void read_value(protozero::pbf_reader value, ReadEvent& event) {
    std::string tag;
    while (value.next()) {
        switch (value.tag()) {
            case 1: tag = value.get_string(); break;
            case 2: event.scalars[tag] = value.get_float(); break;
            case 4: event.images[tag] = read_image(value.get_message()); break;
            case 5: event.histograms[tag] = read_histogram(value.get_message()); break;
            case 8: event.texts[tag] = read_text(value.get_message()); break;
            default: value.skip();
        }
    }
}

inline ReadEvent read_event(const std::string& record) {
    ReadEvent result;
    protozero::pbf_reader message(record);
    while (message.next()) {
        switch (message.tag()) {
            case 1: result.wall_time = message.get_double(); break;
            case 2: result.step = message.get_int64(); break;
            case 3: result.file_version = message.get_string(); break;
            case 5: {
                protozero::pbf_reader summary = message.get_message();
                while (summary.next(1)) read_value(summary.get_message(), result);
                break;
            }
            case 7: {
                protozero::pbf_reader log = message.get_message();
                while (log.next(1)) result.session_start = log.get_enum() == 1;
                break;
            }
            default: FAIL("an event has no field ", message.tag());
        }
    }
    return result;
}

inline std::vector<ReadEvent> read_events(std::string_view file) {
    std::vector<ReadEvent> result;
    for (const std::string& record : read_records(file)) result.push_back(read_event(record));
    return result;
}

}  // namespace cupola_tests
