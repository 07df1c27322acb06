// SPDX-License-Identifier: Apache-2.0
//
// Decodes a PNG in memory to upright bytes of grey, or of red, green and blue, or to floats where it has 16 bits, by
// libpng. Values are those of the file: its gamma and colour profiles, which are for screens, are ignored. Palettes are
// looked up, 1, 2 and 4 bits become 8, transparency is left out.
//
// The library reports an error by a call that must not return, so the functions that set the jump hold nothing with a
// destructor (as in jpeg_decoder.hpp).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <png.h>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>
#include <cupola/data/impl/orientation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The data of the last chunk of a kind with a right checksum, anywhere up to the end of the image: eXIf may come after
/// the pixels.
[[nodiscard]] inline std::span<const std::uint8_t> png_chunk(std::span<const std::uint8_t> bytes,
                                                             std::string_view kind) {
    constexpr std::size_t signature_bytes = 8, frame_bytes = 12;  // length, kind, checksum
    const TiffBytes numbers(bytes, true);
    std::span<const std::uint8_t> result;
    for (std::size_t at = signature_bytes; numbers.has(at, frame_bytes);) {
        const std::size_t length = numbers.read(at, 4);
        if (!numbers.has(at + frame_bytes, length)) break;
        const auto named = bytes.subspan(at + 4, 4 + length);
        if (begins_with(named, "IEND")) break;
        if (begins_with(named, kind)) {
            std::uint32_t crc = 0xFFFF'FFFF;
            for (const std::uint8_t byte : named) {
                crc ^= byte;
                for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB8'8320U : 0U);
            }
            if (~crc == numbers.read(at + 8 + length, 4)) result = named.subspan(4);
        }
        at += frame_bytes + length;
    }
    return result;
}

/// A PNG that is being read; freed however that ends.
class PngReader {
public:
    /// Reads the header. Throws DataError that names the file.
    PngReader(const std::string& name, std::span<const std::uint8_t> bytes) : name_(name), unread_(bytes) {
        check(open());
        orientation_ = exif_orientation(png_chunk(bytes, "eXIf"));
    }
    PngReader(const PngReader&) = delete;
    PngReader& operator=(const PngReader&) = delete;
    ~PngReader() { png_destroy_read_struct(&state_, &info_, nullptr); }

    [[nodiscard]] ImageInfo info() const {
        return {upright_size(stored(), orientation_), png_get_bit_depth(state_, info_) == 16, nullptr};
    }
    /// Writes the upright pixels, of 1 or 3 channels: bytes of an image of up to 8 bits, floats of one of 16.
    template <class Value>
    void read(int channels, Value* to) {
        constexpr bool wide = sizeof(Value) > 1;
        const bool grey = (png_get_color_type(state_, info_) & PNG_COLOR_MASK_COLOR) == 0;
        const std::size_t parts = grey ? 1 : 3, row_bytes = png_get_image_width(state_, info_) * parts * (wide ? 2 : 1);
        std::vector<std::uint8_t> pixels(png_get_image_height(state_, info_) * row_bytes);
        check(decode(row_bytes, pixels.data()));
        for_each_upright(stored(), orientation_, [&](std::int64_t i) {
            const std::uint8_t* const from = pixels.data() + static_cast<std::size_t>(i) * parts * (wide ? 2 : 1);
            const auto part = [&](std::size_t c) -> std::uint32_t {
                if constexpr (wide) return from[2 * c] * 256U + from[2 * c + 1];
                return from[c];
            };
            if (grey || channels == 3) {
                for (int c = 0; c < channels; ++c)
                    *to++ = static_cast<Value>(part(grey ? 0 : static_cast<std::size_t>(c)));
            } else if constexpr (wide) {
                *to++ = static_cast<float>(19595U * part(0) + 38470U * part(1) + 7471U * part(2)) / 65536.0F;
            } else {
                *to++ = grey_of(part(0), part(1), part(2));
            }
        });
    }

private:
    static void fail(png_structp state, png_const_charp message) {
        auto& reader = *static_cast<PngReader*>(png_get_error_ptr(state));
        std::snprintf(reader.message_, sizeof reader.message_, "%s", message);
        std::longjmp(reader.on_error_, 1);
    }
    /// Warnings concern data that the pixels do not need.
    static void ignore(png_structp, png_const_charp) {}
    static void take(png_structp state, png_bytep to, png_size_t count) {
        auto& reader = *static_cast<PngReader*>(png_get_io_ptr(state));
        if (count > reader.unread_.size()) png_error(state, "it ends too early");
        std::memcpy(to, reader.unread_.data(), count);
        reader.unread_ = reader.unread_.subspan(count);
    }

    /// False if that fails; message_ then says why. The same holds for decode().
    bool open() {
        if (setjmp(on_error_) != 0) return false;
        state_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore);
        if (state_ != nullptr) info_ = png_create_info_struct(state_);
        if (info_ == nullptr) {
            std::snprintf(message_, sizeof message_, "%s", "libpng could not begin");
            return false;
        }
        png_set_benign_errors(state_, 1);
        // Only what the pixels need is read: many programs write wrong colour profiles.
        png_set_keep_unknown_chunks(state_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
        png_set_read_fn(state_, this, take);
        png_read_info(state_, info_);
        return true;
    }
    bool decode(std::size_t row_bytes, std::uint8_t* to) {
        if (setjmp(on_error_) != 0) return false;
        const png_byte kind = png_get_color_type(state_, info_);
        if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(state_);
        if (kind == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(state_);
        png_set_strip_alpha(state_);
        const int passes = png_set_interlace_handling(state_);
        png_read_update_info(state_, info_);
        if (png_get_rowbytes(state_, info_) != row_bytes) png_error(state_, "its rows have another length");
        const png_uint_32 height = png_get_image_height(state_, info_);
        for (int pass = 0; pass < passes; ++pass) {
            for (png_uint_32 y = 0; y < height; ++y) png_read_row(state_, to + y * row_bytes, nullptr);
        }
        return true;
    }
    void check(bool done) {
        if (done) return;
        // The constructor's caller gets no object, so no destructor runs; a second time does nothing.
        png_destroy_read_struct(&state_, &info_, nullptr);
        throw DataError(text(name_, " is not a readable PNG image: ", static_cast<const char*>(message_)));
    }

    [[nodiscard]] ImageSize stored() const {
        return {static_cast<std::int64_t>(png_get_image_height(state_, info_)),
                static_cast<std::int64_t>(png_get_image_width(state_, info_))};
    }

    const std::string& name_;
    std::span<const std::uint8_t> unread_;
    png_structp state_ = nullptr;
    png_infop info_ = nullptr;
    std::jmp_buf on_error_{};
    char message_[128]{};
    int orientation_ = 1;
};

/// The size of the upright image and whether it has 16 bits, from the header. Throws DataError that names the file.
[[nodiscard]] inline ImageInfo png_info(const std::string& name, std::span<const std::uint8_t> bytes) {
    return PngReader(name, bytes).info();
}

/// As decode_jpeg, for up to 8 bits per sample; 16 are an error.
inline ImageInfo decode_png(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                            int channels, std::uint8_t* to) {
    PngReader reader(name, bytes);
    require<DataError>(
        !reader.info().wide, name,
        " has 16 bits per sample, which bytes cannot hold; read_image<float> and read_image_folder<float> "
        "read it as floats from 0 to 65535");
    if (reader.info().size == expected) reader.read(channels, to);
    return reader.info();
}

/// For 16 bits per sample: floats from 0 to 65535. Where the image has fewer bits or another size, nothing was written.
inline ImageInfo decode_wide_png(const std::string& name, std::span<const std::uint8_t> bytes,
                                 const ImageSize& expected, int channels, float* to) {
    PngReader reader(name, bytes);
    if (reader.info().wide && reader.info().size == expected) reader.read(channels, to);
    return reader.info();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
