// SPDX-License-Identifier: Apache-2.0
//
// The values that a pickle of PyTorch's tensors is made of, and the few functions and types of Python that tensors are
// made by. No other function is called: whatever one of them would make is a value that has its name alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/strided_view.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

enum class PickleKind : std::uint8_t {
    unset,
    none,
    boolean,
    integer,
    text,
    /// A value that no reader of tensors looks at: a real number, a device, a long integer.
    other,
    list,
    tuple,
    dictionary,
    global,
    storage,
    tensor,
    /// A class or function that is not known, and whatever it would make.
    object
};

[[nodiscard]] inline std::string_view kind_name(PickleKind kind) {
    static constexpr std::array<std::string_view, 13> names{
        "nothing", "None",         "a bool",     "an integer", "a text",   "a number",           "a list",
        "a tuple", "a dictionary", "a function", "a storage",  "a tensor", "an object of Python"};
    return names[static_cast<std::size_t>(kind)];
}

enum class PickleGlobal : std::uint8_t {
    ordered_dict,
    rebuild_tensor,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_parameter,
    size,
    device,
    storage,
    dtype,
    /// A class of tensors, of which the first versions of PyTorch wrote an object and then its attributes.
    tensor
};

/// 16 bytes, since a pickle may make one of each of its bytes.
struct PickleValue {
    PickleKind kind = PickleKind::unset;
    PickleGlobal global{};
    /// Of a storage's or an element's type, its number in `torch_types`.
    std::uint8_t type = 0;
    /// The length of a text.
    std::uint32_t length = 0;
    /// An integer or a bool; where a text begins in the pickle; the number in its table of a list, tuple or dictionary,
    /// of a storage, of a tensor or of an object's class.
    std::int64_t number = 0;

    [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(number); }
};

/// The characters of a text of this pickle; valid until more of it is read.
[[nodiscard]] inline std::string_view text_of(const FileFront& bytes, const PickleValue& text) {
    return bytes.text(static_cast<std::uint64_t>(text.number), text.length);
}

/// What a name of Python's stands for; `unset` for one that is not known.
[[nodiscard]] inline PickleValue pickle_global(std::string_view module, std::string_view name) {
    struct Known {
        std::string_view module, name;
        PickleGlobal global;
    };
    static constexpr std::array<Known, 8> known{
        {{"collections", "OrderedDict", PickleGlobal::ordered_dict},
         {"torch._utils", "_rebuild_tensor", PickleGlobal::rebuild_tensor},
         {"torch._utils", "_rebuild_tensor_v2", PickleGlobal::rebuild_tensor_v2},
         {"torch._utils", "_rebuild_tensor_v3", PickleGlobal::rebuild_tensor_v3},
         {"torch._utils", "_rebuild_parameter", PickleGlobal::rebuild_parameter},
         {"torch._utils", "_rebuild_parameter_with_state", PickleGlobal::rebuild_parameter},
         {"torch", "Size", PickleGlobal::size},
         {"torch", "device", PickleGlobal::device}}};
    for (const Known& each : known) {
        if (each.module == module && each.name == name) return {.kind = PickleKind::global, .global = each.global};
    }
    for (std::size_t i = 0; i < torch_types.size() && !name.empty(); ++i) {
        const auto type = static_cast<std::uint8_t>(i);
        if ((module == "torch" || module == "torch.storage") && torch_types[i].storage == name)
            return {.kind = PickleKind::global, .global = PickleGlobal::storage, .type = type};
        constexpr std::string_view storage = "Storage", tensor = "Tensor";
        const std::string_view stored = torch_types[i].storage;
        const bool tensors =
            i != 0 && stored.ends_with(storage) && name.ends_with(tensor) &&
            stored.substr(0, stored.size() - storage.size()) == name.substr(0, name.size() - tensor.size());
        if ((module == "torch" || module == "torch.cuda") && tensors)
            return {.kind = PickleKind::global, .global = PickleGlobal::tensor, .type = type};
        if (module == "torch" && torch_types[i].dtype == name)
            return {.kind = PickleKind::global, .global = PickleGlobal::dtype, .type = type};
    }
    return {};
}

/// A storage as the pickle states it.
struct PickleStorage {
    /// A text.
    PickleValue key;
    std::uint8_t type = 0;
    /// In elements: those stated, and for a storage that is a part of another one, where it begins there.
    std::uint64_t count = 0, offset = 0;
};

/// A tensor as the pickle states it: its extents and strides are values of two lists or tuples. The first versions of
/// PyTorch state a tensor and then its storage, which it lacks until then.
struct PickleTensor {
    static constexpr auto no_storage = static_cast<std::size_t>(-1);
    std::size_t storage = no_storage, extents = 0, strides = 0;
    std::uint64_t offset = 0;
    std::uint8_t type = 0;
    /// Whether its numbers are those of the storage with the other sign (Python's `tensor.is_neg()`).
    bool negated = false;
};

/// Everything that pickles have made. Lists, tuples and dictionaries are lists of values, those of a dictionary in
/// pairs.
struct PickleTables {
    std::vector<std::vector<PickleValue>> lists;
    std::vector<PickleStorage> storages;
    std::vector<PickleTensor> tensors;
    /// The classes and functions that are not known, "argparse.Namespace".
    std::vector<std::string> classes;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
