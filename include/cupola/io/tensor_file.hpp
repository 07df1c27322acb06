// SPDX-License-Identifier: Apache-2.0
//
// What the files of named tensors have in common: safetensors files (io/safetensors.hpp), those of PyTorch's
// `torch.save` (io/torch_file.hpp), and several of them with an index. io/open_tensor_file.hpp opens each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/closest_names.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/stored_floats.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class TensorFile {
public:
    using Metadata = impl::SafetensorsHeader::Texts;

    TensorFile(TensorFile&&) = default;
    TensorFile& operator=(TensorFile&&) = default;
    virtual ~TensorFile() = default;

    /// Writes the elements of one of `tensors()` in the order of C to `to`. Throws InvalidArgument for a tensor of
    /// another file, and DataError where the elements are of another type than F32, F16, BF16 and F64.
    void read_floats(const SafeTensor& tensor, float* to) const { read_floats(tensor, 0, {to, tensor.elements()}); }
    /// Those of its elements from the number `first` on that `to` has a place for. Throws InvalidArgument where the
    /// tensor has fewer.
    void read_floats(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const {
        const SafeTensor* const own = find(tensor.name);
        if (own == nullptr) throw InvalidArgument(text(path_, " has no tensor ", impl::shown(tensor.name)));
        require<DataError>(impl::is_stored_float(own->type), path_, ": ", impl::shown(tensor.name),
                           " has elements of type ", impl::shown(own->type), "; F32, F16, BF16 and F64 are supported");
        const std::uint64_t elements = own->elements();
        require(first <= elements && to.size() <= elements - first, path_, ": ", impl::shown(tensor.name), " has ",
                elements, " elements, and not ", to.size(), " from the number ", first, " on");
        if (!to.empty()) read_some(*own, first, to);
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    /// In the order of their names.
    [[nodiscard]] std::span<const SafeTensor> tensors() const { return tensors_; }
    /// Null if there is no tensor of that name.
    [[nodiscard]] const SafeTensor* find(std::string_view name) const {
        const auto place = std::ranges::lower_bound(tensors_, name, {}, &SafeTensor::name);
        return place != tensors_.end() && place->name == name ? &*place : nullptr;
    }
    /// Throws DataError with the closest names if there is no tensor of that name.
    [[nodiscard]] const SafeTensor& at(std::string_view name) const {
        const SafeTensor* const tensor = find(name);
        if (tensor != nullptr) return *tensor;
        throw DataError(text(path_, " has no tensor ", impl::shown(name), impl::closest_names(name, tensors_)));
    }
    /// The texts of `__metadata__`, in the file's order.
    [[nodiscard]] const Metadata& metadata() const { return metadata_; }
    /// Whether the file had a checksum, which was then right.
    [[nodiscard]] bool has_checksum() const { return has_checksum_; }
    /// What a wrapper of PyTorch's has put before every name and a reader leaves out: "module.", "_orig_mod.", both in
    /// either order, or nothing.
    [[nodiscard]] const std::string& wrapper() const { return wrapper_; }

protected:
    explicit TensorFile(std::string path) : path_(std::move(path)) {}

    std::string path_, wrapper_;
    std::vector<SafeTensor> tensors_;
    Metadata metadata_;
    bool has_checksum_ = false;

private:
    /// At least one element; the tensor, one of `tensors()`, has them and is of floats.
    virtual void read_some(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const = 0;
};

}}  // namespace cupola::CUPOLA_ABI
