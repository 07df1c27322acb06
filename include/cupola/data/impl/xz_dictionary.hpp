// SPDX-License-Identifier: Apache-2.0
//
// The largest dictionary that a file packed by xz or lzma makes its reader allocate. libarchive sets no limit, and a
// file of a hundred bytes may need 4 GiB.
//
// An xz file is walked from block to block and chunk to chunk by the sizes that it states, without unpacking. Where
// they contradict each other the walk ends; unpacking then stops at the same place with an error.
// Source: "The .xz File Format", version 1.2.0, https://tukaani.org/xz/xz-file-format.txt.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cupola/data/impl/files.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class XzWalk {
public:
    explicit XzWalk(const std::string& path) : file_(path) {}

    /// The largest dictionary of all blocks of all streams.
    [[nodiscard]] std::uint64_t largest_dictionary() {
        // Streams may follow one another, with zeros between them.
        while (!ended_) {
            const std::uint8_t first = byte();
            if (first == magic[0]) {
                walk_stream();
            } else if (first != 0) {
                break;
            }
        }
        return largest_;
    }

private:
    static constexpr std::array<std::uint8_t, 6> magic{0xFD, '7', 'z', 'X', 'Z', 0};
    static constexpr std::size_t checksum = 4, stream_footer = 12;

    /// The next byte, or 0 at the file's end, where `ended_` is set.
    std::uint8_t byte() {
        std::uint8_t value = 0;
        if (at_ < file_.size()) {
            file_.read(&value, 1);
        } else {
            ended_ = true;
        }
        ++at_;
        return value;
    }
    void skip(std::uint64_t count) {
        const std::uint64_t left = at_ < file_.size() ? file_.size() - at_ : 0;
        ended_ = ended_ || count > left;
        count = std::min(count, left);
        file_.skip(std::size_t{count});
        at_ += count;
    }
    void skip_to_multiple_of_4(std::uint64_t since) { skip((4 - (at_ - since) % 4) % 4); }
    /// A number in groups of seven bits.
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 63; shift += 7) {
            const std::uint8_t part = byte();
            value |= static_cast<std::uint64_t>(part & 0x7F) << shift;
            if ((part & 0x80) == 0) return value;
        }
        ended_ = true;  // longer than the format allows
        return 0;
    }

    void walk_stream() {
        for (std::size_t i = 1; i < magic.size(); ++i) ended_ = byte() != magic[i] || ended_;
        skip(1);
        static constexpr std::array<std::uint8_t, 16> check_bytes{0,  4,  4,  4,  8,  8,  8,  16,
                                                                  16, 16, 32, 32, 32, 64, 64, 64};
        const std::size_t check = check_bytes[byte() & 15];
        skip(checksum);
        while (!ended_) {
            const std::uint64_t block = at_;
            const std::uint64_t size = byte();
            if (size == 0) break;  // the index
            read_filters(block, 4 * (size + 1));
            walk_chunks();
            skip_to_multiple_of_4(block);
            skip(check);
        }
        const std::uint64_t index = at_ - 1;
        for (std::uint64_t records = number(); records > 0 && !ended_; --records) {
            static_cast<void>(number());
            static_cast<void>(number());
        }
        skip_to_multiple_of_4(index);
        skip(checksum + stream_footer);
    }

    /// The block's header: what each of its filters needs.
    void read_filters(std::uint64_t block, std::uint64_t header) {
        const std::uint8_t flags = byte();
        if ((flags & 0x40) != 0) static_cast<void>(number());
        if ((flags & 0x80) != 0) static_cast<void>(number());
        for (int filter = 0; filter <= (flags & 3) && !ended_; ++filter) {
            constexpr std::uint64_t lzma2 = 0x21;
            const std::uint64_t id = number(), properties = number();
            if (id == lzma2 && properties == 1) {
                const unsigned bits = byte() & 0x3F;
                const std::uint64_t size =
                    bits >= 40 ? 0xFFFFFFFF : static_cast<std::uint64_t>(2 | (bits & 1)) << (bits / 2 + 11);
                if (!ended_) largest_ = std::max(largest_, size);
            } else {
                skip(properties);
            }
        }
        ended_ = ended_ || at_ > block + header;
        if (!ended_) skip(block + header - at_);
    }

    void walk_chunks() {
        while (!ended_) {
            const std::uint8_t control = byte();
            if (control == 0) return;
            if (control >= 0x80) skip(2);  // the lower bits of the size as unpacked
            const std::uint64_t high = byte();
            const std::uint64_t size = (high << 8 | byte()) + 1;
            skip(size + (control >= 0xC0 ? 1 : 0));
            ended_ = ended_ || (control > 2 && control < 0x80);
        }
    }

    InputFile file_;
    std::uint64_t at_ = 0, largest_ = 0;
    bool ended_ = false;
};

/// The same of a file in the older format, .lzma: it is in the header.
[[nodiscard]] inline std::uint64_t lzma_dictionary(const std::string& path) {
    InputFile file(path);
    std::array<std::uint8_t, 5> head{};
    if (file.size() < head.size()) return 0;
    file.read(head.data(), head.size());
    std::uint64_t size = 0;
    for (std::size_t i = 4; i >= 1; --i) size = size << 8 | head[i];
    return size;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
