// SPDX-License-Identifier: Apache-2.0
//
// A tensor that is a view of a part of a file: each index has its stride, so that a transposed tensor and a slice are
// read as they lie there, and an index with stride 0 repeats its elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/stored_floats.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// An element type of PyTorch's: its dtype, its storage and what safetensors calls it.
struct TorchType {
    std::string_view dtype, storage, name;
    std::uint64_t bytes = 1;
};
/// The first one has no type of its own: the bytes of which a tensor states its dtype.
inline constexpr std::array<TorchType, 18> torch_types{{{"", "UntypedStorage", "", 1},
                                                        {"float32", "FloatStorage", "F32", 4},
                                                        {"float64", "DoubleStorage", "F64", 8},
                                                        {"float16", "HalfStorage", "F16", 2},
                                                        {"bfloat16", "BFloat16Storage", "BF16", 2},
                                                        {"int64", "LongStorage", "I64", 8},
                                                        {"int32", "IntStorage", "I32", 4},
                                                        {"int16", "ShortStorage", "I16", 2},
                                                        {"int8", "CharStorage", "I8", 1},
                                                        {"uint8", "ByteStorage", "U8", 1},
                                                        {"bool", "BoolStorage", "BOOL", 1},
                                                        {"complex64", "ComplexFloatStorage", "C64", 8},
                                                        {"complex128", "ComplexDoubleStorage", "C128", 16},
                                                        {"uint16", "", "U16", 2},
                                                        {"uint32", "", "U32", 4},
                                                        {"uint64", "", "U64", 8},
                                                        {"float8_e4m3fn", "", "F8_E4M3", 1},
                                                        {"float8_e5m2", "", "F8_E5M2", 1}}};

inline constexpr std::size_t max_view_rank = 16;

struct StridedView {
    /// One of `torch_types`.
    std::uint8_t type = 0;
    /// Of its first element in the file, in bytes.
    std::uint64_t begin = 0;
    std::vector<std::uint64_t> extents{}, strides{};
};

/// An index of a view: its extent, and its strides in the file and in the result.
struct ViewIndex {
    std::uint64_t extent = 1, from = 0, to = 0;
};

/// The indices with more than one element, the one with the largest stride in the file first.
[[nodiscard, gnu::cold]] inline std::vector<ViewIndex> ordered_indices(const StridedView& view) {
    std::vector<ViewIndex> indices;
    std::uint64_t to = 1;
    for (std::size_t i = view.extents.size(); i-- > 0;) {
        if (view.extents[i] != 1) indices.push_back({view.extents[i], view.strides[i], to});
        to *= view.extents[i];
    }
    heap_sort(indices,
              [](const ViewIndex& a, const ViewIndex& b) { return a.from != b.from ? a.from > b.from : a.to > b.to; });
    return indices;
}

/// From the first to the last element of these indices, in elements of the file.
[[nodiscard]] inline std::uint64_t view_span(std::span<const ViewIndex> indices) {
    std::uint64_t span = 1;
    for (const ViewIndex& index : indices) span += (index.extent - 1) * index.from;
    return span;
}

/// Checks a view of the `available` elements of a storage, from its element `offset` on. `what` begins the message:
/// "w.pth: conv1.weight". Throws DataError.
inline void check_view(std::string_view what, const StridedView& view, std::uint64_t offset, std::uint64_t available) {
    std::uint64_t elements = 1, last = offset;
    const bool empty = std::ranges::find(view.extents, std::uint64_t{0}) != view.extents.end();
    for (std::size_t i = 0; i < view.extents.size(); ++i) {
        std::uint64_t distance = 0;
        bool fits = !__builtin_mul_overflow(elements, std::max<std::uint64_t>(view.extents[i], 1), &elements);
        fits = fits && elements <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        require<DataError>(fits, what, " has more elements than can be counted");
        if (empty) continue;
        fits = !__builtin_mul_overflow(view.extents[i] - 1, view.strides[i], &distance) &&
               !__builtin_add_overflow(last, distance, &last);
        if (!fits) last = std::numeric_limits<std::uint64_t>::max();
    }
    if (empty) return;
    require<DataError>(last < available, what, " reaches past its storage, which has ", available, " elements");
    const std::vector<ViewIndex> indices = ordered_indices(view);
    for (std::size_t i = 0; i < indices.size() && indices[i].from > 0; ++i) {
        require<DataError>(indices[i].from >= view_span(std::span(indices).subspan(i + 1)), what,
                           " has strides by which its elements overlap; only an index of stride 0 may repeat them");
    }
}

/// Reads a view that has been checked, in pieces.
class ViewReader {
public:
    /// `piece` is the most bytes that are read at a time.
    ViewReader(const FilePieces& file, const StridedView& view, float* to, std::size_t piece = std::size_t{1} << 20)
        : file_(file), type_(torch_types[view.type]), begin_(view.begin), to_(to), most_(piece / type_.bytes) {
        empty_ = std::ranges::find(view.extents, std::uint64_t{0}) != view.extents.end();
        if (empty_) return;
        for (const ViewIndex& index : ordered_indices(view)) {
            // Two indices that are one in the file and in the result become one.
            if (!indices_.empty() && indices_.back().from == index.extent * index.from &&
                indices_.back().to == index.extent * index.to)
                indices_.back() = {indices_.back().extent * index.extent, index.from, index.to};
            else
                indices_.push_back(index);
        }
    }

    void read() {
        if (!empty_) read(indices_, 0, 0);
    }

private:
    void read(std::span<const ViewIndex> indices, std::uint64_t from, std::uint64_t to) {
        const std::uint64_t span = view_span(indices);
        if (span <= most_ || indices.empty()) return read_piece(indices, span, from, to);
        const std::span<const ViewIndex> inner = indices.subspan(1);
        const std::uint64_t inner_span = view_span(inner);
        if (inner_span > most_) {
            for (std::uint64_t i = 0; i < indices[0].extent; ++i)
                read(inner, from + i * indices[0].from, to + i * indices[0].to);
            return;
        }
        std::array<ViewIndex, max_view_rank> part;
        std::ranges::copy(indices, part.begin());
        const std::uint64_t count = (most_ - inner_span) / indices[0].from + 1;
        for (std::uint64_t i = 0; i < indices[0].extent; i += count) {
            part[0].extent = std::min(count, indices[0].extent - i);
            const std::span<const ViewIndex> some = std::span(part).first(indices.size());
            read_piece(some, view_span(some), from + i * indices[0].from, to + i * indices[0].to);
        }
    }

    void read_piece(std::span<const ViewIndex> indices, std::uint64_t span, std::uint64_t from, std::uint64_t to) {
        bytes_.resize(span * type_.bytes);
        file_.read(begin_ + from * type_.bytes, bytes_);
        if (indices.empty() || (indices.size() == 1 && indices[0].from == 1 && indices[0].to == 1))
            return read_stored_floats(type_.name, bytes_, to_ + to);
        floats_.resize(span);
        read_stored_floats(type_.name, bytes_, floats_.data());
        scatter(indices, floats_.data(), to_ + to);
    }

    static void scatter(std::span<const ViewIndex> indices, const float* from, float* to) {
        const ViewIndex index = indices[0];
        for (std::uint64_t i = 0; i < index.extent; ++i) {
            if (indices.size() == 1)
                to[i * index.to] = from[i * index.from];
            else
                scatter(indices.subspan(1), from + i * index.from, to + i * index.to);
        }
    }

    const FilePieces& file_;
    const TorchType& type_;
    std::uint64_t begin_;
    float* to_;
    std::uint64_t most_;
    bool empty_ = false;
    std::vector<ViewIndex> indices_;
    std::vector<std::byte> bytes_;
    std::vector<float> floats_;
};

/// Reads the elements of a view that has been checked from the number `first` on, in the order of C. They are made of
/// views: the rows of the first index of which all elements are read, and what is left of the rows before and behind.
inline void read_view(const FilePieces& file, StridedView view, std::uint64_t first, std::span<float> to) {
    std::uint64_t row = 1;
    for (const std::uint64_t extent : view.extents) row *= extent;
    if (to.empty()) return;
    if (first == 0 && to.size() == row) {
        ViewReader(file, view, to.data()).read();
        return;
    }
    row /= view.extents[0];
    const std::uint64_t step = view.strides[0] * torch_types[view.type].bytes;
    const auto inner = [&](std::uint64_t index, std::uint64_t begin, std::span<float> part) {
        StridedView each = view;
        each.begin += index * step;
        each.extents.erase(each.extents.begin());
        each.strides.erase(each.strides.begin());
        read_view(file, std::move(each), begin, part);
    };
    if (const std::uint64_t begin = first % row; begin > 0) {
        const std::span<float> part = to.first(std::min<std::uint64_t>(row - begin, to.size()));
        inner(first / row, begin, part);
        first += part.size();
        to = to.subspan(part.size());
    }
    if (const std::uint64_t rows = to.size() / row; rows > 0) {
        StridedView whole = view;
        whole.begin += first / row * step;
        whole.extents[0] = rows;
        ViewReader(file, whole, to.data()).read();
        first += rows * row;
        to = to.subspan(rows * row);
    }
    if (!to.empty()) inner(first / row, 0, to);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
