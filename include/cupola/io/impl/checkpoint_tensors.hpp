// SPDX-License-Identifier: Apache-2.0
//
// The arenas of a training's state as tensors of a file, and whether a file has the tensors of a network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/file_parts.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::string_view averages_prefix = "ema.", optimizer_prefix = "optimizer.",
                                  replica_prefix = "replica.", outer_prefix = "outer.";

/// An arena, how its tensors are called in the file, and where it is in a TrainingState.
struct StoredArena {
    enum class Kind { parameters, buffers, averages, optimizer, centre_optimizer };

    std::string prefix;
    std::span<const StoredTensor> tensors;
    std::int64_t elements = 0;
    Kind kind = Kind::parameters;
    /// The index in TrainingState::replicas where replicas agree on a centre, else 0 for the state itself.
    std::size_t replica = 0;
    bool has_centre = false;
    /// For an arena of the optimiser's state, its number.
    std::size_t number = 0;

    /// Whether it has the tensor of a part of the network's.
    [[nodiscard]] bool has(const FilePart& part) const {
        return part.buffer == (kind == Kind::buffers) && part.tensor->offset < elements;
    }
};

/// The arenas of a checkpoint, in the file's order.
[[nodiscard, gnu::cold]] inline std::vector<StoredArena> stored_arenas(const StoredTensors& tensors, bool averages,
                                                                       std::span<const OptimizerState> optimizer) {
    using Kind = StoredArena::Kind;
    std::vector<StoredArena> arenas;
    const auto add = [&](std::string prefix, Kind kind, std::size_t number = 0) {
        const bool all = kind == Kind::parameters;
        arenas.push_back({std::move(prefix), all ? tensors.parameters : tensors.trained,
                          all ? tensors.parameter_elements : tensors.trained_elements, kind, 0, false, number});
    };
    add("", Kind::parameters);
    arenas.push_back({"", tensors.buffers, tensors.buffer_elements, Kind::buffers});
    if (averages) add(std::string(averages_prefix), Kind::averages);
    for (std::size_t i = 0; i < optimizer.size(); ++i)
        add(text(optimizer_prefix, optimizer[i].name, '.'), Kind::optimizer, i);
    return arenas;
}

/// The same of replicas that agree on a centre: its arenas, and then those of each replica.
[[nodiscard]] inline std::vector<StoredArena> stored_arenas_of_centre(const StoredTensors& tensors, bool averages,
                                                                      const TrainingState& state) {
    using Kind = StoredArena::Kind;
    std::vector<StoredArena> arenas = stored_arenas(tensors, averages, {});
    for (std::size_t i = 0; i < state.centre_optimizer.size(); ++i)
        arenas.push_back({text(outer_prefix, state.centre_optimizer[i].name, '.'), tensors.trained,
                          tensors.trained_elements, Kind::centre_optimizer, 0, false, i});
    for (std::size_t r = 0; r < state.replicas.size(); ++r) {
        for (StoredArena arena : stored_arenas(tensors, false, state.replicas[r].optimizer)) {
            if (arena.kind == Kind::buffers) continue;
            arena.prefix = text(replica_prefix, r, '.', arena.prefix);
            arena.replica = r;
            arena.has_centre = true;
            arenas.push_back(std::move(arena));
        }
    }
    return arenas;
}

[[nodiscard]] inline std::vector<StoredArena> stored_arenas(const StoredTensors& tensors, bool averages,
                                                            const TrainingState& state) {
    if (!state.replicas.empty()) return stored_arenas_of_centre(tensors, averages, state);
    return stored_arenas(tensors, averages, state.optimizer);
}

template <class State>
[[nodiscard]] auto& arena_of(State& state, const StoredArena& arena) {
    using Kind = StoredArena::Kind;
    const auto of = [&](auto& part) -> auto& {
        if (arena.kind == Kind::optimizer) return part.optimizer[arena.number].values;
        return arena.kind == Kind::averages ? part.averages : part.parameters;
    };
    if (arena.kind == Kind::buffers) return state.buffers;
    if (arena.kind == Kind::centre_optimizer) return state.centre_optimizer[arena.number].values;
    return arena.has_centre ? of(state.replicas[arena.replica]) : of(state);
}

/// Reads tensors of a file a piece at a time.
class TensorPieces {
public:
    /// 64 MB.
    static constexpr std::size_t most_elements = 16'000'000;

    explicit TensorPieces(const TensorFile& file, std::size_t most = most_elements) : file_(file), most_(most) {}

    [[nodiscard]] const TensorFile& file() const { return file_; }
    /// Calls `f(first, values)` for each piece of a tensor: its elements from the number `first` on.
    template <class F>
    void for_each(const SafeTensor& tensor, const F& f) {
        const std::uint64_t elements = tensor.elements();
        for (std::uint64_t first = 0; first < elements; first += values_.size()) {
            const std::size_t count = std::min<std::uint64_t>(most_, elements - first);
            // Not resized where it would take both memories at a time.
            if (values_.capacity() < count) values_ = std::vector<float>();
            values_.resize(count);
            file_.read_floats(tensor, first, values_);
            f(static_cast<std::int64_t>(first), std::span<const float>(values_));
        }
    }

private:
    const TensorFile& file_;
    std::size_t most_;
    std::vector<float> values_;
};

[[noreturn]] inline void refuse_network(const std::string& path, const std::string& difference) {
    throw DataError(text(path, " is a checkpoint of another network: ", difference));
}

/// Throws DataError for a file without tensors, such as one whose training has saved an empty dictionary.
inline void require_tensors(const TensorFile& file) {
    require<DataError>(!file.tensors().empty(), "nothing could be loaded from ", file.path(), ": it has no tensors");
}

/// If the file has all of these tensors, but with a prefix before their names, as PyTorch's wrappers of networks save
/// them: "; its names begin with module., and .file_prefix = \"module.\" leaves that out". Otherwise empty.
[[nodiscard, gnu::cold]] inline std::string hint_of_prefix(const TensorFile& file, std::span<const FilePart> parts) {
    if (parts.empty()) return {};
    const std::string& first = parts.front().name;
    for (const SafeTensor& tensor : file.tensors()) {
        const std::string_view name = tensor.name;
        if (name.size() <= first.size() + 1 || !name.ends_with(first) || name[name.size() - first.size() - 1] != '.')
            continue;
        const std::string prefix(name.substr(0, name.size() - first.size()));
        const bool all =
            std::ranges::all_of(parts, [&](const FilePart& each) { return file.find(prefix + each.name) != nullptr; });
        if (all)
            return text("; its names begin with ", shown(prefix), ", and .file_prefix = \"", shown(prefix),
                        "\" leaves that out");
    }
    return {};
}

/// The beginning of the names in the file: `given` or, where that is empty, what a wrapper of PyTorch's has put before
/// all of them, unless this network's names begin so too.
[[nodiscard]] inline std::string prefix_in(const TensorFile& file, const std::string& given,
                                           std::span<const FilePart> parts) {
    const bool own = std::ranges::any_of(parts, [&](const FilePart& part) { return file.find(part.name) != nullptr; });
    return given.empty() && !own ? file.wrapper() : given;
}

/// Throws DataError unless the file has all parts of the arena's tensors with their extents.
inline void check_tensors(const TensorFile& file, const StoredArena& arena, std::span<const FilePart> parts) {
    for (const FilePart& part : parts) {
        if (!arena.has(part)) continue;
        const std::string name = arena.prefix + part.name;
        const SafeTensor* stored = file.find(name);
        if (stored == nullptr) {
            std::vector<FilePart> own;
            std::ranges::copy_if(parts, std::back_inserter(own), [&](const FilePart& each) { return arena.has(each); });
            refuse_network(file.path(), text("it has no tensor ", name, hint_of_prefix(file, std::span(own))));
        }
        if (stored->shape() != part.extents) {
            refuse_network(file.path(), text("its ", name, " is [", shown(stored->extents), "], and this network's is ",
                                             extents_text(part.extents)));
        }
        require<DataError>(is_stored_float(stored->type), file.path(), ": ", name, " has elements of type ",
                           shown(stored->type), "; F32, F16, BF16 and F64 are supported");
    }
}

/// Throws DataError for the first tensor of the file that is not a part of any arena's and that `is_ignored` is false
/// of. PyTorch's counts of batches, which are stored with the running statistics, are allowed. With `may_ignore` the
/// message says how to leave the tensor out.
[[gnu::cold]] inline void check_no_more(const TensorFile& file, std::span<const StoredArena> arenas,
                                        std::span<const FilePart> parts, FunctionRef<bool(std::string_view)> is_ignored,
                                        bool may_ignore) {
    std::vector<std::string> known;
    for (const StoredArena& arena : arenas) {
        for (const FilePart& part : parts) {
            if (arena.has(part)) known.push_back(arena.prefix + part.name);
        }
    }
    heap_sort(known);
    for (const SafeTensor& tensor : file.tensors()) {
        if (std::ranges::binary_search(known, tensor.name, std::less<>()) ||
            tensor.name.ends_with(".num_batches_tracked") || is_ignored(tensor.name))
            continue;
        const std::string name = shown(tensor.name);
        refuse_network(file.path(),
                       text("it has a tensor ", name, ", which this network does not have",
                            may_ignore ? text("; .ignored = {\"", name, "\"} leaves it out") : std::string()));
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
