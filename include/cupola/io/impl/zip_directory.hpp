// SPDX-License-Identifier: Apache-2.0
//
// The entries of a zip archive by its central directory, with ZIP64, and where the data of those begins that are stored
// as they are. Sizes are taken from the directory alone: a writer that streams leaves them 0 in front of the data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ZipEntry {
    std::string_view name;
    /// The place of its local header, and the bytes of its data.
    std::uint64_t header = 0, size = 0;
    std::uint16_t method = 0, flags = 0;
};

class ZipDirectory {
public:
    explicit ZipDirectory(const FilePieces& file) : file_(file) {
        const Place place = find_directory();
        directory_ = file.read(place.offset, place.size);
        end_of_data_ = place.offset;
        read_entries();
    }
    ZipDirectory(const ZipDirectory&) = delete;
    ZipDirectory& operator=(const ZipDirectory&) = delete;

    /// In the order of their names.
    [[nodiscard]] std::span<const ZipEntry> entries() const { return entries_; }
    /// Null if there is no entry of that name.
    [[nodiscard]] const ZipEntry* find(std::string_view name) const {
        const auto place = std::ranges::lower_bound(entries_, name, {}, &ZipEntry::name);
        return place != entries_.end() && place->name == name ? &*place : nullptr;
    }
    /// Where the entry's data begins in the file. Throws DataError unless all of it is there, neither compressed nor
    /// encrypted.
    [[nodiscard, gnu::cold]] std::uint64_t data_of(const ZipEntry& entry) const {
        const std::string& path = file_.path();
        if ((entry.flags & 1) != 0)
            throw DataError(text(path, " has the encrypted entry ", shown(entry.name), ", which cannot be read"));
        if (entry.method != 0)
            throw DataError(text(path, " has the compressed entry ", shown(entry.name), " (method ", entry.method,
                                 "): torch.save stores its records uncompressed, and only those are read"));
        constexpr std::size_t fixed = 30;
        const std::uint64_t named = fixed + entry.name.size();
        if (entry.header > end_of_data_ || end_of_data_ - entry.header < named) refuse(entry);
        const std::vector<std::byte> header = file_.read(entry.header, named);
        const std::string_view name(reinterpret_cast<const char*>(header.data()) + fixed, entry.name.size());
        if (little_endian<std::uint32_t>(&header[0]) != 0x04034B50 || name != entry.name ||
            little_endian<std::uint16_t>(&header[26]) != name.size())
            refuse(entry);
        const std::uint64_t begin = entry.header + named + little_endian<std::uint16_t>(&header[28]);
        if (begin > end_of_data_ || entry.size > end_of_data_ - begin) refuse(entry);
        return begin;
    }

private:
    struct Place {
        std::uint64_t offset = 0, size = 0;
    };
    static constexpr std::size_t end_bytes = 22, longest_comment = 65'535, locator_bytes = 20, end64_bytes = 56,
                                 entry_bytes = 46;

    [[noreturn, gnu::cold]] void refuse(const ZipEntry& entry) const {
        throw DataError(text(file_.path(), " is damaged: its entry ", shown(entry.name), " of ", entry.size,
                             " bytes is not where the archive's directory has it"));
    }

    /// The directory's place, from the record at the end of the file.
    [[nodiscard, gnu::cold]] Place find_directory() const {
        const std::uint64_t size = file_.size(), back = std::min<std::uint64_t>(size, end_bytes + longest_comment);
        const std::vector<std::byte> end = file_.read(size - back, back);
        std::size_t at = back < end_bytes ? 0 : back - end_bytes + 1;
        do {
            require<DataError>(at > 0, file_.path(),
                               " is truncated: a zip archive ends with its directory, and this "
                               "file does not");
            --at;
        } while (little_endian<std::uint32_t>(&end[at]) != 0x06054B50 ||
                 little_endian<std::uint16_t>(&end[at + 20]) != back - end_bytes - at);
        Place place{little_endian<std::uint32_t>(&end[at + 16]), little_endian<std::uint32_t>(&end[at + 12])};
        std::uint64_t last = size - back + at;
        if (last >= locator_bytes + end64_bytes) {
            std::byte locator[locator_bytes], end64[end64_bytes];
            file_.read(last - locator_bytes, locator);
            const std::uint64_t offset = little_endian<std::uint64_t>(locator + 8);
            if (little_endian<std::uint32_t>(locator) == 0x07064B50 && offset <= last - locator_bytes - end64_bytes) {
                file_.read(offset, end64);
                if (little_endian<std::uint32_t>(end64) == 0x06064B50) {
                    place = {little_endian<std::uint64_t>(end64 + 48), little_endian<std::uint64_t>(end64 + 40)};
                    last = offset;
                }
            }
        }
        require<DataError>(place.offset <= last && place.size <= last - place.offset, file_.path(),
                           " is damaged: the directory of the archive, ", place.size, " bytes from byte ", place.offset,
                           " on, is not in front of its end at byte ", last);
        return place;
    }

    [[gnu::cold]] void read_entries() {
        const std::span<const std::byte> all = directory_;
        const auto damaged = [&](std::size_t at) {
            throw DataError(text(file_.path(), " is damaged: the directory of the archive is invalid at byte ", at));
        };
        // Counted first: a list that grows would take more memory.
        for (const bool counts : {true, false}) {
            std::size_t count = 0;
            for (std::size_t at = 0; at < all.size(); ++count) {
                if (all.size() - at < entry_bytes || little_endian<std::uint32_t>(&all[at]) != 0x02014B50) damaged(at);
                const std::size_t name = little_endian<std::uint16_t>(&all[at + 28]),
                                  extra = little_endian<std::uint16_t>(&all[at + 30]),
                                  comment = little_endian<std::uint16_t>(&all[at + 32]);
                if (all.size() - at - entry_bytes < name + extra + comment) damaged(at);
                if (!counts) entries_.push_back(read_entry(all.subspan(at, entry_bytes + name + extra), name));
                at += entry_bytes + name + extra + comment;
            }
            if (counts) entries_.reserve(count);
        }
        heap_sort(entries_, {}, &ZipEntry::name);
        const auto twice = std::ranges::adjacent_find(entries_, {}, &ZipEntry::name);
        if (twice != entries_.end())
            throw DataError(text(file_.path(), " is damaged: it has two entries named ", shown(twice->name)));
    }

    [[nodiscard]] ZipEntry read_entry(std::span<const std::byte> bytes, std::size_t name) const {
        ZipEntry entry;
        entry.name = {reinterpret_cast<const char*>(bytes.data()) + entry_bytes, name};
        entry.flags = little_endian<std::uint16_t>(&bytes[8]);
        entry.method = little_endian<std::uint16_t>(&bytes[10]);
        std::uint64_t packed = little_endian<std::uint32_t>(&bytes[20]);
        entry.size = little_endian<std::uint32_t>(&bytes[24]);
        entry.header = little_endian<std::uint32_t>(&bytes[42]);
        std::span<const std::byte> extra = bytes.subspan(entry_bytes + name);
        while (extra.size() >= 4) {
            const std::size_t tag = little_endian<std::uint16_t>(&extra[0]),
                              length = std::min<std::size_t>(little_endian<std::uint16_t>(&extra[2]), extra.size() - 4);
            if (tag == 1) {
                // ZIP64: those of the three that do not fit in 32 bits, in this order.
                std::span<const std::byte> large = extra.subspan(4, length);
                for (std::uint64_t* const number : {&entry.size, &packed, &entry.header}) {
                    if (*number != 0xFFFFFFFF || large.size() < 8) continue;
                    *number = little_endian<std::uint64_t>(large.data());
                    large = large.subspan(8);
                }
            }
            extra = extra.subspan(4 + length);
        }
        require<DataError>(entry.method != 0 || (entry.flags & 1) != 0 || packed == entry.size, file_.path(),
                           " is damaged: its entry ", shown(entry.name), " has ", entry.size,
                           " bytes and is stored in ", packed);
        return entry;
    }

    const FilePieces& file_;
    std::vector<std::byte> directory_;
    std::vector<ZipEntry> entries_;
    std::uint64_t end_of_data_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
