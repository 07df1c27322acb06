// SPDX-License-Identifier: Apache-2.0
//
// Decodes a JPEG in memory to upright bytes of grey, or of red, green and blue, by libjpeg-turbo.
//
// The library reports an error by a call that must not return; its own exits the process. Ours jumps back (a C++
// exception must not cross the library's C frames), so the functions that set the jump hold nothing with a destructor.
// Warnings are errors here: the library fills the missing part of a truncated image with grey and only warns. Three
// warnings are not errors, since the pixels are complete (JpegReader::flaw_of).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>
#include <cupola/data/impl/orientation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A JPEG that is being read; freed however that ends.
class JpegReader {
public:
    /// Reads the header. Throws DataError that names the file.
    JpegReader(const std::string& name, std::span<const std::uint8_t> bytes) : name_(name) {
        check(open(bytes.data(), bytes.size()));
        for (const jpeg_marker_struct* each = state_.marker_list; each != nullptr; each = each->next) {
            const std::span<const std::uint8_t> data(each->data, each->data_length);
            if (!begins_with(data, exif_mark)) continue;
            orientation_ = exif_orientation(data.subspan(exif_mark.size()));
            break;
        }
    }
    JpegReader(const JpegReader&) = delete;
    JpegReader& operator=(const JpegReader&) = delete;
    ~JpegReader() { jpeg_destroy_decompress(&state_); }

    [[nodiscard]] ImageInfo info() const { return {upright_size(stored(), orientation_), false, flaw_}; }
    /// Writes the upright pixels, of 1 or 3 channels.
    void read(int channels, std::uint8_t* to) {
        // The library does not convert four components to colours: up to here they are cyan, magenta, yellow and black.
        const bool printed = state_.num_components == 4;
        const std::size_t components = printed ? 4 : static_cast<std::size_t>(channels);
        const J_COLOR_SPACE space = printed ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        if (orientation_ == 1 && !printed) return check(decode(space, components, to));
        std::vector<std::uint8_t> pixels(std::size_t{state_.image_height} * state_.image_width * components);
        check(decode(space, components, pixels.data()));
        for_each_upright(stored(), orientation_, [&](std::int64_t i) {
            const std::uint8_t* const from = pixels.data() + static_cast<std::size_t>(i) * components;
            std::uint8_t colour[3];
            if (printed) colours_of_inverted_cmyk(from, colour);
            if (printed && channels == 1) {
                *to++ = grey_of(colour[0], colour[1], colour[2]);
            } else {
                for (int c = 0; c < channels; ++c) *to++ = printed ? colour[c] : from[c];
            }
        });
    }

private:
    static JpegReader& reader_of(j_common_ptr state) { return *static_cast<JpegReader*>(state->client_data); }

    static void fail(j_common_ptr state) {
        JpegReader& reader = reader_of(state);
        (*state->err->format_message)(state, reader.message_);
        std::longjmp(reader.on_error_, 1);
    }
    static void warn(j_common_ptr state, int level) {
        if (level >= 0) return;
        const char* const flaw = flaw_of(*state->err);
        if (flaw == nullptr) fail(state);
        if (reader_of(state).flaw_ == nullptr) reader_of(state).flaw_ = flaw;
    }
    /// The text for a warning after which the pixels are complete; null for any other warning.
    static const char* flaw_of(const jpeg_error_mgr& errors) {
        switch (errors.msg_code) {
            // Between two segments these bytes may be what is left of a damaged one: then they are an error.
            case JWRN_EXTRANEOUS_DATA:
                return errors.msg_parm.i[1] == JPEG_EOI ? "bytes before the end marker" : nullptr;
            case JWRN_JFIF_MAJOR: return "an unknown version of JFIF";
            case JWRN_ADOBE_XFORM: return "an unknown colour transform of Adobe";
            default: return nullptr;
        }
    }
    /// Each scan of a progressive image goes over all of its blocks and may take no more than a few bytes: without a
    /// limit a small file can take hours.
    static void limit_scans(j_common_ptr state) {
        constexpr int max_scans = 100;
        if (reinterpret_cast<j_decompress_ptr>(state)->input_scan_number <= max_scans) return;
        JpegReader& reader = reader_of(state);
        std::snprintf(reader.message_, sizeof reader.message_, "it has more than %d scans", max_scans);
        std::longjmp(reader.on_error_, 1);
    }

    /// False if that fails; message_ then says why. The same holds for decode().
    bool open(const std::uint8_t* bytes, std::size_t count) {
        state_.err = jpeg_std_error(&errors_);
        errors_.error_exit = fail;
        errors_.emit_message = warn;
        state_.client_data = this;
        if (setjmp(on_error_) != 0) return false;
        jpeg_create_decompress(&state_);
        progress_.progress_monitor = limit_scans;
        state_.progress = &progress_;
        jpeg_save_markers(&state_, JPEG_APP0 + 1, 0xFFFF);
        jpeg_mem_src(&state_, bytes, count);
        jpeg_read_header(&state_, TRUE);
        return true;
    }
    bool decode(J_COLOR_SPACE space, std::size_t components, std::uint8_t* to) {
        if (setjmp(on_error_) != 0) return false;
        state_.out_color_space = space;
        jpeg_start_decompress(&state_);
        while (state_.output_scanline < state_.output_height) {
            JSAMPROW row = to + static_cast<std::size_t>(state_.output_scanline) * state_.image_width * components;
            jpeg_read_scanlines(&state_, &row, 1);
        }
        jpeg_finish_decompress(&state_);
        return true;
    }
    void check(bool done) {
        if (done) return;
        // The constructor's caller gets no object, so no destructor runs; a second time does nothing.
        jpeg_destroy_decompress(&state_);
        throw DataError(text(name_, " is not a readable JPEG image: ", static_cast<const char*>(message_)));
    }

    [[nodiscard]] ImageSize stored() const {
        return {static_cast<std::int64_t>(state_.image_height), static_cast<std::int64_t>(state_.image_width)};
    }
    /// Converts the inks as Adobe's programs, and so all others, write them, with 255 for no ink; the bytes are
    /// Pillow's.
    static void colours_of_inverted_cmyk(const std::uint8_t* ink, std::uint8_t* colour) {
        const std::uint32_t black = ink[3];
        for (int c = 0; c < 3; ++c) {
            const std::uint32_t product = (255U - ink[c]) * black + 128U;
            colour[c] =
                static_cast<std::uint8_t>(black - ((product + (product >> 8U)) >> 8U));  // product / 255, rounded
        }
    }

    const std::string& name_;
    jpeg_decompress_struct state_{};
    jpeg_error_mgr errors_{};
    jpeg_progress_mgr progress_{};
    std::jmp_buf on_error_{};
    char message_[JMSG_LENGTH_MAX]{};
    const char* flaw_ = nullptr;
    int orientation_ = 1;
};

/// The size of the upright image, from the header. Throws DataError that names the file.
[[nodiscard]] inline ImageInfo jpeg_info(const std::string& name, std::span<const std::uint8_t> bytes) {
    return JpegReader(name, bytes).info();
}

/// The pixels, height x width x channels, which are 1 or 3. Where the size is not `expected`, nothing was written.
/// Throws DataError that names the file.
inline ImageInfo decode_jpeg(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                             int channels, std::uint8_t* to) {
    JpegReader reader(name, bytes);
    if (reader.info().size == expected) reader.read(channels, to);
    return reader.info();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
