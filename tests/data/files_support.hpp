// SPDX-License-Identifier: Apache-2.0
//
// Files for the tests of the readers: a folder that is deleted at the end, JPEG and PNG images, EXIF, archives, and a reader
// without privileges.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <jpeglib.h>
#include <zlib.h>

#include "../child_process.hpp"
#include "../standard.hpp"
#include "../temporary_folder.hpp"

namespace cupola_tests {

using Bytes = std::vector<std::uint8_t>;

using ::TemporaryFolder;

inline Bytes read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A JPEG of the rows that `fill` writes: red, green and blue of each pixel, or the components of `space`, stored as `stored`.
/// With `scans` it is progressive.
inline Bytes jpeg_of_rows(int height, int width, const std::function<void(Bytes& row)>& fill,
                          const std::vector<jpeg_scan_info>& scans = {}, J_COLOR_SPACE space = JCS_RGB,
                          J_COLOR_SPACE stored = JCS_YCbCr) {
    jpeg_compress_struct state{};
    jpeg_error_mgr errors{};
    state.err = jpeg_std_error(&errors);
    jpeg_create_compress(&state);
    unsigned char* memory = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&state, &memory, &size);
    state.image_height = static_cast<JDIMENSION>(height);
    state.image_width = static_cast<JDIMENSION>(width);
    state.input_components = space == JCS_CMYK ? 4 : 3;
    state.in_color_space = space;
    jpeg_set_defaults(&state);
    jpeg_set_colorspace(&state, stored);
    jpeg_set_quality(&state, 100, TRUE);
    if (!scans.empty()) {
        state.scan_info = scans.data();
        state.num_scans = static_cast<int>(scans.size());
    }
    jpeg_start_compress(&state, TRUE);
    Bytes row(static_cast<std::size_t>(width * state.input_components));
    while (state.next_scanline < state.image_height) {
        fill(row);
        JSAMPROW pointer = row.data();
        jpeg_write_scanlines(&state, &pointer, 1);
    }
    jpeg_finish_compress(&state);
    Bytes result(memory, memory + size);
    jpeg_destroy_compress(&state);
    std::free(memory);
    return result;
}

/// A JPEG of one colour, or with `noisy` of many.
inline Bytes jpeg(int height, int width, std::uint8_t red, std::uint8_t green, std::uint8_t blue, bool noisy = false) {
    std::uint32_t noise = 1;
    return jpeg_of_rows(height, width, [&](Bytes& row) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            noise = noise * 1664525U + 1013904223U;
            row[i] = noisy ? static_cast<std::uint8_t>(noise >> 24) : i % 3 == 0 ? red : i % 3 == 1 ? green : blue;
        }
    });
}

/// The EXIF of a camera that says how the image is turned, with another entry before.
inline Bytes exif(int orientation, bool big_endian = true) {
    Bytes result(38);
    std::size_t at = 0;
    const auto put = [&](unsigned value, int count) {
        for (int i = 0; i < count; ++i) {
            const int shift = 8 * (big_endian ? count - 1 - i : i);
            result[at++] = static_cast<std::uint8_t>(value >> static_cast<unsigned>(shift));
        }
    };
    result[0] = result[1] = big_endian ? 'M' : 'I';
    at = 2;
    put(42, 2), put(8, 4), put(2, 2);               // the first folder is at 8 and has two entries
    put(0x010F, 2), put(2, 2), put(4, 4), at += 4;  // the maker, four characters
    put(0x0112, 2), put(3, 2), put(1, 4);           // the orientation, one short number
    put(static_cast<unsigned>(orientation), 2);
    return result;
}

/// A JPEG with a segment APP1 that begins with `mark` before all others.
inline Bytes with_exif(Bytes jpeg, const Bytes& exif, const std::string& mark = std::string("Exif\0\0", 6)) {
    Bytes segment{0xFF, 0xE1, 0, 0};
    segment.insert(segment.end(), mark.begin(), mark.end());
    segment.insert(segment.end(), exif.begin(), exif.end());
    segment[2] = static_cast<std::uint8_t>((segment.size() - 2) >> 8U);
    segment[3] = static_cast<std::uint8_t>(segment.size() - 2);
    jpeg.insert(jpeg.begin() + 2, segment.begin(), segment.end());
    return jpeg;
}

/// What the library says about a file: bytes before the end marker, which other programs skip.
inline Bytes with_bytes_before_end(Bytes jpeg) {
    jpeg.insert(jpeg.end() - 2, 64, std::uint8_t{0});
    return jpeg;
}

inline Bytes png_chunk(const std::string& kind, const Bytes& data) {
    Bytes result;
    const auto add_number = [&](std::size_t value) {
        for (const unsigned shift : {24U, 16U, 8U, 0U}) result.push_back(static_cast<std::uint8_t>(value >> shift));
    };
    add_number(data.size());
    result.insert(result.end(), kind.begin(), kind.end());
    result.insert(result.end(), data.begin(), data.end());
    add_number(crc32(0, result.data() + 4, static_cast<uInt>(result.size() - 4)));
    return result;
}

/// A PNG of these bytes: rows without a filter, `depth` bits per value, one of PNG's colour types; with chunks before and
/// after the pixels.
inline Bytes png_of(int height, int width, int depth, int colour_type, const Bytes& values, const Bytes& before = {},
                    const Bytes& after = {}) {
    Bytes result{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    const auto add = [&](const Bytes& bytes) { result.insert(result.end(), bytes.begin(), bytes.end()); };
    add(png_chunk("IHDR", {0, 0, 0, static_cast<std::uint8_t>(width), 0, 0, 0, static_cast<std::uint8_t>(height),
                           static_cast<std::uint8_t>(depth), static_cast<std::uint8_t>(colour_type), 0, 0, 0}));
    add(before);
    Bytes rows;
    const std::size_t row_bytes = values.size() / static_cast<std::size_t>(height);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i % row_bytes == 0) rows.push_back(0);
        rows.push_back(values[i]);
    }
    uLongf size = compressBound(static_cast<uLong>(rows.size()));
    Bytes packed(size);
    compress(packed.data(), &size, rows.data(), static_cast<uLong>(rows.size()));
    packed.resize(size);
    add(png_chunk("IDAT", packed));
    add(after);
    add(png_chunk("IEND", {}));
    return result;
}

/// Values of 16 bits as a PNG stores them.
inline Bytes in_16_bits(const std::vector<int>& values) {
    Bytes result;
    for (const int value : values) {
        result.push_back(static_cast<std::uint8_t>(value >> 8));
        result.push_back(static_cast<std::uint8_t>(value & 0xFF));
    }
    return result;
}

/// What `f` writes to standard error.
inline std::string standard_error_of(const std::function<void()>& f) {
    std::FILE* const file = std::tmpfile();
    std::fflush(stderr);
    const int before = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    try {
        f();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "(an exception: %s)", error.what());
    }
    std::fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    std::rewind(file);
    std::string result;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) result += static_cast<char>(c);
    std::fclose(file);
    return result;
}

/// The files of a small ImageFolder: 2 classes, 3 training images and 1 test image each, 8 x 6 pixels.
inline std::map<std::string, Bytes> small_image_folder() {
    std::map<std::string, Bytes> files;
    for (int i = 0; i < 3; ++i) {
        const auto shade = static_cast<std::uint8_t>(40 * i);
        files["train/cat/" + std::to_string(i) + ".jpg"] = jpeg(8, 6, 200, 100, shade);
        files["train/dog/" + std::to_string(i) + ".JPEG"] = jpeg(8, 6, shade, 30, 220);
    }
    files["test/cat/0.jpg"] = jpeg(8, 6, 250, 100, 10);
    files["test/dog/0.jpg"] = jpeg(8, 6, 10, 30, 250);
    return files;
}

inline void write_all(const TemporaryFolder& folder, const std::string& root,
                      const std::map<std::string, Bytes>& files) {
    for (const auto& [name, bytes] : files) folder.write(root + "/" + name, bytes);
}

enum class Packing { tar, tar_xz, tar_gz, zip };

/// Packs the files; a name that ends in a slash is a folder.
inline void write_archive(const std::string& path, const std::vector<std::pair<std::string, Bytes>>& files,
                          Packing packing) {
    archive* handle = archive_write_new();
    if (packing == Packing::zip)
        archive_write_set_format_zip(handle);
    else
        archive_write_set_format_pax_restricted(handle);
    if (packing == Packing::tar_xz) archive_write_add_filter_xz(handle);
    if (packing == Packing::tar_gz) archive_write_add_filter_gzip(handle);
    archive_write_open_filename(handle, path.c_str());
    for (const auto& [name, bytes] : files) {
        archive_entry* entry = archive_entry_new();
        archive_entry_set_pathname(entry, name.c_str());
        archive_entry_set_filetype(entry, name.back() == '/' ? AE_IFDIR : AE_IFREG);
        archive_entry_set_perm(entry, 0755);
        archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
        archive_write_header(handle, entry);
        archive_write_data(handle, bytes.data(), bytes.size());
        archive_entry_free(entry);
    }
    archive_write_close(handle);
    archive_write_free(handle);
}

inline void write_archive(const std::string& path, const std::map<std::string, Bytes>& files, Packing packing) {
    write_archive(path, std::vector<std::pair<std::string, Bytes>>(files.begin(), files.end()), packing);
}

/// What f returns when it is run by a user who owns nothing. Root may read everything, so a test of rights that runs as root
/// uses another process.
inline std::string as_nobody(const std::function<std::string()>& f) {
    if (geteuid() != 0) return f();
    return in_child([&] {
        constexpr uid_t nobody = 65534;
        return setuid(nobody) == 0 ? f() : std::string("(setuid failed)");
    });
}

}  // namespace cupola_tests
