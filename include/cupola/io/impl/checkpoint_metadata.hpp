// SPDX-License-Identifier: Apache-2.0
//
// The parts of a checkpoint that are not tensors, as texts in the file's `__metadata__`, and back.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/safetensors.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/net/network_description.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

inline constexpr std::string_view checkpoint_version = "1";

struct Checkpoint {
    TrainingState state{};
    CheckpointInfo info{};
    /// Whether a Cupola training wrote the file; if not, it has only parameters and running statistics.
    bool resumable = true;
    /// The network that the file was written for (net/network_description.hpp); empty if the file does not state it.
    /// Not used when a checkpoint is written.
    std::string network{};
};

/// Whether a checkpoint may be of another network whose parameters have the same names and extents: another activation,
/// dropout, or rate.
enum class NetworkInFile : std::uint8_t { equal, of_same_parameters };

namespace impl {

inline constexpr std::string_view own_prefix = "cupola.", version_key = "cupola.version", step_key = "cupola.step",
                                  optimizer_states_key = "cupola.optimizer_states", replicas_key = "cupola.replicas",
                                  frozen_key = "cupola.frozen", inputs_key = "cupola.inputs",
                                  loss_scale_key = "cupola.loss_scale", network_key = "cupola.network",
                                  centre_replicas_key = "cupola.centre_replicas",
                                  outer_states_key = "cupola.outer_states", samples_since_key = "cupola.samples_since",
                                  rule_key = "cupola.rule";

/// Whether an optimiser's state may have this name, which becomes a part of the names of tensors.
[[nodiscard]] inline bool is_state_name(std::string_view name) {
    constexpr std::size_t longest = 64;
    return !name.empty() && name.size() <= longest && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

/// The names of the frozen parameters, with a space between them.
[[nodiscard]] inline std::string frozen_names(std::span<const LayerInfo> layers) {
    std::string names;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            if (layers[i].frozen[p]) names += text(names.empty() ? "" : " ", parameter_name(layers, i, p));
        }
    }
    return names;
}

/// "input int32 1 x 16, country int32 1": the inputs of ids and of bytes; empty for a network of floats alone.
[[nodiscard]] inline std::string input_types(std::span<const LayerInfo> layers) {
    std::string types;
    const auto add = [&](std::string_view name, ElementType type, const Shape& shape) {
        if (type == ElementType::float32) return;
        types += text(types.empty() ? "" : ", ", name, ' ', to_string(type), ' ', to_string(shape));
    };
    add(input_column, layers.front().column_type, layers.front().input);
    for (const LayerInfo& layer : layers) {
        if (!layer.column.empty()) add(layer.column, layer.column_type, layer.output);
    }
    return types;
}

[[nodiscard]] inline SafetensorsWriter::Metadata metadata_of(const std::string& path, const Checkpoint& checkpoint,
                                                             std::span<const LayerInfo> layers) {
    const auto names_of = [&](std::span<const OptimizerState> all) {
        std::string names;
        for (const OptimizerState& state : all) {
            require(is_state_name(state.name), path, " cannot have an optimiser state named '", shown(state.name),
                    "': a name consists of letters, digits and _");
            names += text(names.empty() ? "" : " ", state.name);
        }
        return names;
    };
    const std::vector<ReplicaState>& of_centre = checkpoint.state.replicas;
    std::string states = names_of(of_centre.empty() ? checkpoint.state.optimizer : of_centre.front().optimizer);
    require(checkpoint.state.step >= 0, path, " cannot have the step ", checkpoint.state.step);
    SafetensorsWriter::Metadata metadata{{"format", "pt"},  // what other tools look for: the layouts are PyTorch's
                                         {std::string(version_key), std::string(checkpoint_version)},
                                         {std::string(step_key), text(checkpoint.state.step)},
                                         {std::string(optimizer_states_key), std::move(states)}};
    if (const auto& scale = checkpoint.state.loss_scale) {
        require_loss_scale(*scale, checkpoint.state.step);
        metadata.emplace_back(loss_scale_key, text(exact_text(static_cast<double>(scale->scale)), ' ',
                                                   scale->good_steps, ' ', scale->skipped_steps));
    }
    if (!of_centre.empty()) {
        metadata.emplace_back(centre_replicas_key, text(of_centre.size()));
        if (std::string outer = names_of(checkpoint.state.centre_optimizer); !outer.empty())
            metadata.emplace_back(outer_states_key, std::move(outer));
        std::string samples;
        for (const std::int64_t each : checkpoint.state.samples_since)
            samples += text(samples.empty() ? "" : " ", each);
        if (!samples.empty()) metadata.emplace_back(samples_since_key, std::move(samples));
        if (!checkpoint.state.rule.empty()) metadata.emplace_back(rule_key, checkpoint.state.rule);
    }
    if (std::string frozen = frozen_names(layers); !frozen.empty())
        metadata.emplace_back(frozen_key, std::move(frozen));
    if (std::string inputs = input_types(layers); !inputs.empty()) metadata.emplace_back(inputs_key, std::move(inputs));
    metadata.emplace_back(network_key, network_description(layers));
    for (const auto& [key, value] : checkpoint.info.entries()) {
        require(!key.starts_with(own_prefix), path, " cannot have the metadata key ", key,
                ": keys that begin with cupola. are reserved");
        metadata.emplace_back(key, value);
    }
    return metadata;
}

/// A number of [min, max]; `what` names it.
[[nodiscard]] inline std::int64_t parse_number(const TensorFile& file, std::string_view digits, const char* what,
                                               std::int64_t min, std::int64_t max) {
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    require<DataError>(error == std::errc() && end == digits.data() + digits.size() && number >= min && number <= max,
                       file.path(), " has the ", what, " '", shown(digits), "', which is not a valid ", what);
    return number;
}

/// "32768 12 3": the scale, the steps since it changed, and those that were skipped.
[[nodiscard]] inline LossScaleState parse_loss_scale(const TensorFile& file, std::string_view value) {
    const auto refuse = [&] {
        throw DataError(text(file.path(), " has the loss scale '", shown(value), "', which is not a valid loss scale"));
    };
    LossScaleState state;
    const char *at = value.data(), *const end = at + value.size();
    const auto read = [&](auto& number) {
        const auto [stop, error] = number_from_chars(at, end, number);
        if (error != std::errc()) refuse();
        at = stop;
    };
    const auto space = [&] {
        if (at == end || *at != ' ') refuse();
        ++at;
    };
    read(state.scale);
    space();
    read(state.good_steps);
    space();
    read(state.skipped_steps);
    if (at != end) refuse();
    return state;
}

/// The optimiser's states in the file, with their names alone.
[[nodiscard]] inline std::vector<OptimizerState> named_states(const TensorFile& file, std::string_view names) {
    std::vector<OptimizerState> result;
    while (!names.empty()) {
        const std::size_t space = names.find(' ');
        const std::string_view name = names.substr(0, space);
        require<DataError>(is_state_name(name), file.path(), " has an optimiser state named '", shown(name),
                           "', which is not a valid name");
        result.push_back({.name = std::string(name)});
        names.remove_prefix(space == std::string_view::npos ? names.size() : space + 1);
        require<DataError>(result.size() <= 16, file.path(), " has more than 16 optimiser states");
        for (std::size_t i = 0; i + 1 < result.size(); ++i) {
            require<DataError>(result[i].name != name, file.path(), " has the optimiser state ", name, " twice");
        }
    }
    return result;
}

/// The parameters that the training that wrote the file froze.
class FrozenInMetadata {
public:
    explicit FrozenInMetadata(const TensorFile& file) {
        for (const auto& [key, value] : file.metadata()) {
            if (key == frozen_key) names_ = text(' ', value, ' ');
        }
    }
    [[nodiscard]] bool has(const std::string& name) const { return names_.find(text(' ', name, ' ')) != names_.npos; }

private:
    std::string names_;
};

/// Throws DataError unless the inputs of the file's network have the types of those of `layers`.
inline void check_inputs(const TensorFile& file, std::span<const LayerInfo> layers) {
    std::string_view there;
    for (const auto& [key, value] : file.metadata()) {
        if (key == inputs_key) there = value;
    }
    const std::string here = input_types(layers);
    const auto described = [](std::string_view types) { return types.empty() ? "floats alone" : types; };
    require<DataError>(there == here, file.path(), " is the checkpoint of a network with other inputs: it reads ",
                       shown(described(there)), ", and this network ", described(here));
}

/// Throws DataError unless `layers` is the network of the description `described` or, with `in_prediction`, predicts as
/// that one does. An empty description is not compared. `name` is the checkpoint's.
inline void require_network(std::string_view name, std::string_view described, std::span<const LayerInfo> layers,
                            bool in_prediction) {
    if (described.empty()) return;
    std::string there(described), here = network_description(layers);
    if (in_prediction) {
        there = description_in_prediction(there);
        here = description_in_prediction(here);
    }
    if (there == here) return;
    throw DataError(text(name, " is a checkpoint of another network: ", to_string({"layer", there, here}),
                         "; NetworkInFile::of_same_parameters reads it all the same"));
}

/// `layers`, with those parameters frozen that the file's training froze.
[[nodiscard]] inline std::vector<LayerInfo> frozen_as_in(const TensorFile& file, std::span<const LayerInfo> layers) {
    const FrozenInMetadata there(file);
    std::vector<LayerInfo> result(layers.begin(), layers.end());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p)
            result[i].frozen[p] = there.has(parameter_name(layers, i, p));
    }
    lay_out_parameters(result);
    return result;
}

/// Throws DataError unless the training that wrote the file froze the parameters that `layers` has frozen: its
/// optimiser's state and its averages are those of the others.
inline void check_frozen(const TensorFile& file, std::span<const LayerInfo> layers) {
    const FrozenInMetadata there(file);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            const std::string name = parameter_name(layers, i, p);
            if (there.has(name) == layers[i].frozen[p]) continue;
            throw DataError(text(file.path(), " is the checkpoint of a training with other frozen parameters: ", name,
                                 " is ",
                                 there.has(name) ? "frozen there and trained here" : "trained there and frozen here",
                                 "; its optimiser's state and moving averages cannot be continued, and load_parameters "
                                 "reads the parameters alone"));
        }
    }
}

/// The texts of the metadata; the step and the names of the states go where they belong.
[[gnu::cold]] inline void read_metadata(const TensorFile& file, Checkpoint& checkpoint) {
    checkpoint.resumable = false;
    bool has_step = false;
    for (const auto& [key, value] : file.metadata()) {
        if (key == version_key) {
            require<DataError>(value == checkpoint_version, file.path(), " has version ", shown(value),
                               " of Cupola's checkpoints; this program reads version ", checkpoint_version);
            checkpoint.resumable = true;
        } else if (key == step_key) {
            checkpoint.state.step = parse_number(file, value, "step", 0, largest_count);
            has_step = true;
        } else if (key == loss_scale_key) {
            checkpoint.state.loss_scale = parse_loss_scale(file, value);
        } else if (key == replicas_key) {
            throw DataError(text(file.path(), " is of a training by a policy that moved parameters, of ", shown(value),
                                 " replicas without a centre, which cannot be continued any more: Periodic of "
                                 "cupola/parallel/kinds/periodic.hpp takes its place; load_parameters reads the "
                                 "parameters of its first replica"));
        } else if (key == centre_replicas_key) {
            // Each replica has at least one tensor.
            const auto most = static_cast<std::int64_t>(std::max<std::size_t>(file.tensors().size(), 1));
            const std::int64_t replicas = parse_number(file, value, "number of replicas", 1, most);
            checkpoint.state.replicas.resize(static_cast<std::size_t>(replicas));
        } else if (key == outer_states_key) {
            checkpoint.state.centre_optimizer = named_states(file, value);
        } else if (key == samples_since_key) {
            for (std::string_view left = value; !left.empty();) {
                const std::size_t space = std::min(left.find(' '), left.size());
                checkpoint.state.samples_since.push_back(
                    parse_number(file, left.substr(0, space), "number of samples", 0, largest_count));
                left.remove_prefix(std::min(space + 1, left.size()));
                constexpr std::size_t most = std::size_t{1} << 20;
                require<DataError>(checkpoint.state.samples_since.size() <= most, file.path(), " has more than ", most,
                                   " numbers of samples");
            }
        } else if (key == rule_key) {
            // It is compared and printed: as shown() has it, but whole.
            checkpoint.state.rule = shown(value, 4096);
        } else if (key == optimizer_states_key) {
            checkpoint.state.optimizer = named_states(file, value);
        } else if (key == network_key) {
            checkpoint.network = value;
        } else if (key != checksum_key && key != frozen_key && key != inputs_key && key != "format") {
            checkpoint.info.set(key, std::string(value));
        }
    }
    // A single wrong byte in the checksum's name would otherwise switch the check off.
    require<DataError>(!checkpoint.resumable || (file.has_checksum() && has_step), file.path(),
                       " is damaged: it lacks its checksum or its step");
    if (checkpoint.resumable) {
        // Those of all replicas for each fragment of the parameters.
        require<DataError>(checkpoint.state.samples_since.empty() ||
                               (!checkpoint.state.replicas.empty() &&
                                checkpoint.state.samples_since.size() % checkpoint.state.replicas.size() == 0),
                           file.path(), " has the parameters of ", checkpoint.state.replicas.size(),
                           " replicas, and the numbers of samples of ", checkpoint.state.samples_since.size());
        try {
            if (checkpoint.state.loss_scale) require_loss_scale(*checkpoint.state.loss_scale, checkpoint.state.step);
        } catch (const InvalidArgument& error) {
            throw DataError(text(file.path(), " cannot be used: ", error.what()));
        }
        return;
    }
    checkpoint.state.step = 0;
    checkpoint.network.clear();
    checkpoint.state.loss_scale.reset();
    checkpoint.state.optimizer.clear();
    checkpoint.state.replicas.clear();
    checkpoint.state.centre_optimizer.clear();
    checkpoint.state.samples_since.clear();
    checkpoint.state.rule.clear();
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
