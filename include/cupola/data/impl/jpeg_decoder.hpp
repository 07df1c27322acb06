// SPDX-License-Identifier: Apache-2.0
//
// Decodes a JPEG in memory to bytes of grey, or of red, green and blue, by libjpeg-turbo.
//
// The library reports an error by a call that must not return; its own exits the process. Ours jumps back (a C++
// exception must not cross the library's C frames), so the functions that set the jump hold nothing with a destructor.
// Warnings are errors here: the library fills what is missing of a cut image with grey and only warns.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include <jpeglib.h>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// libjpeg's state, where to jump on an error, and what the error said.
struct JpegReader {
    jpeg_decompress_struct state{};
    jpeg_error_mgr errors{};
    jpeg_progress_mgr progress{};
    std::jmp_buf on_error{};
    char message[JMSG_LENGTH_MAX]{};

    static void fail(j_common_ptr state) {
        auto& reader = *static_cast<JpegReader*>(state->client_data);
        (*state->err->format_message)(state, reader.message);
        std::longjmp(reader.on_error, 1);
    }
    static void warn(j_common_ptr state, int level) {
        if (level < 0) fail(state);
    }
    /// Each scan of a progressive image goes over all of its blocks and may take no more than a few bytes: without a
    /// limit a small file can take hours.
    static void limit_scans(j_common_ptr state) {
        constexpr int max_scans = 100;
        if (reinterpret_cast<j_decompress_ptr>(state)->input_scan_number <= max_scans) return;
        auto& reader = *static_cast<JpegReader*>(state->client_data);
        std::snprintf(reader.message, sizeof reader.message, "it has more than %d scans", max_scans);
        std::longjmp(reader.on_error, 1);
    }
};

/// Reads the header and, with somewhere to put them, the pixels. False if that fails; the reader then has the message.
/// `expected` is the size that `to` has room for, with that many channels.
inline bool read_jpeg(JpegReader& reader, const std::uint8_t* bytes, std::size_t count, ImageSize& size,
                      const ImageSize& expected, int channels, std::uint8_t* to) {
    reader.state.err = jpeg_std_error(&reader.errors);
    reader.errors.error_exit = JpegReader::fail;
    reader.errors.emit_message = JpegReader::warn;
    reader.state.client_data = &reader;
    if (setjmp(reader.on_error) != 0) {
        jpeg_destroy_decompress(&reader.state);
        return false;
    }
    jpeg_create_decompress(&reader.state);
    reader.progress.progress_monitor = JpegReader::limit_scans;
    reader.state.progress = &reader.progress;
    jpeg_mem_src(&reader.state, bytes, count);
    jpeg_read_header(&reader.state, TRUE);
    size = {static_cast<std::int64_t>(reader.state.image_height), static_cast<std::int64_t>(reader.state.image_width)};
    if (to != nullptr && size.height == expected.height && size.width == expected.width) {
        reader.state.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_start_decompress(&reader.state);
        while (reader.state.output_scanline < reader.state.output_height) {
            JSAMPROW row = to + static_cast<std::size_t>(reader.state.output_scanline) * reader.state.image_width *
                                    static_cast<std::size_t>(channels);
            jpeg_read_scanlines(&reader.state, &row, 1);
        }
        jpeg_finish_decompress(&reader.state);
    }
    jpeg_destroy_decompress(&reader.state);
    return true;
}

/// Height and width of the JPEG, from its header. Throws DataError that names the file.
[[nodiscard]] inline ImageSize jpeg_size(const std::string& name, std::span<const std::uint8_t> bytes) {
    JpegReader reader;
    ImageSize size;
    const bool done = read_jpeg(reader, bytes.data(), bytes.size(), size, {}, 3, nullptr);
    require<DataError>(done, name, " is not a readable JPEG image: ", static_cast<const char*>(reader.message));
    return size;
}

/// The pixels, height x width x channels, which are 1 or 3. Returns the size; where it is not `expected`, nothing was
/// written. Throws DataError that names the file.
inline ImageSize decode_jpeg(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                             int channels, std::uint8_t* to) {
    JpegReader reader;
    ImageSize size;
    const bool done = read_jpeg(reader, bytes.data(), bytes.size(), size, expected, channels, to);
    require<DataError>(done, name, " is not a readable JPEG image: ", static_cast<const char*>(reader.message));
    return size;
}

}  // namespace cupola::inline CUPOLA_ABI::impl
