// SPDX-License-Identifier: Apache-2.0
//
// For programs that only run a trained network: all that a network type needs, the CPU backend, and Predictor.
//
//   const Predictor<Net> predictor("run1/model-1000.safetensors", {.max_batch = 32, .streams = 4});
//   predictor.predict(samples, logits);
//   predictor.predict(samples, {{"kind", kinds}, {"box", boxes}});  // the outputs of a network that has several
//
// The file is a checkpoint of a Cupola training, or one with the same parameters that PyTorch saved. The network of the
// training, and the network here, may each be a Frozen<Net, ...>, with any patterns. Every member function may be
// called by any number of threads at once; `streams` of the calls run at a time. After construction Cupola allocates
// nothing; OpenMP may allocate at the first call of a thread, where a stream has more than one thread, and oneDNN in
// matrix products on processors without AVX-512.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/compiled_operations.hpp>
#include <cupola/core/error.hpp>
#include <cupola/device/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/layers.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/inference_streams.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/prediction/host_formulas.hpp>
#include <cupola/net/prediction/join.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class D>
struct PredictorOptions {
    /// The number of samples of the largest batch. Smaller batches are run in pieces (net/inference_streams.hpp).
    std::int64_t max_batch = 1;
    /// The number of calls that run at a time; others wait. Each has its own activations and packed weights, and all
    /// share the parameters.
    int streams = 1;
    /// The options of each stream's device.
    typename D::Options device{};
    /// If empty, the moving averages if the checkpoint has them, and otherwise the trained parameters.
    std::optional<Weights> weights{};
    /// Whether the checkpoint may be of a network that computes something else with the same parameters, such as one
    /// without a Sigmoid at its end.
    NetworkInFile network = NetworkInFile::equal;
    /// For a file of PyTorch: the beginning of the names in it, such as "module.", patterns of the names of tensors
    /// that are left out because this network does not have them, and what its parameters and running statistics are in
    /// a file of other names and layouts (ReadOptions in io/checkpoint.hpp).
    std::string file_prefix{};
    std::vector<std::string> ignored{};
    NameTable names{};
};

/// The place of the values of an output, by its name.
struct NamedOutput {
    std::string_view name;
    std::span<float> values;
};

template <Network Net, class D = Host>
class Predictor {
public:
    using NetworkType = Net;
    using Options = PredictorOptions<D>;
    /// float; std::int32_t for an Input of ids, and std::uint8_t for one of bytes.
    using Sample = InputValue<Net>;

    /// Reads the checkpoint at `path`. Throws DataError if it is not of this network, lacks the requested weights, or
    /// contains numbers that are not finite, and InvalidArgument, DeviceError or OutOfMemory if it cannot be run with
    /// `options`, or if `options.names` is no table of this network. Layers that do nothing in evaluation, frozen
    /// parameters and the precision may differ from those of the training.
    [[gnu::cold]] explicit Predictor(const std::string& path, const Options& options = {})
        : Predictor(read_checkpoint(path, Net::layers,
                                    ReadOptions{.frozen = FrozenInFile::any,
                                                .network = options.network,
                                                .file_prefix = options.file_prefix,
                                                .ignored = options.ignored,
                                                .names = options.names}),
                    path, options) {}

    /// Takes a checkpoint that was read, or the state of a training; `name` is its name in errors. Throws as the other
    /// constructor does. A state without `tensors` is in the layout of Net.
    [[gnu::cold]] Predictor(const Checkpoint& checkpoint, const std::string& name, const Options& options = {})
        : step_(checkpoint.state.step),
          info_(checkpoint.info),
          weights_(chosen(checkpoint, name, options)),
          max_batch_(options.max_batch),
          streams_(InferenceStreams<D, typename Net::Precision::Activation>::template make<Net>(
              {.max_batch = options.max_batch,
               .streams = options.streams,
               .device = options.device,
               .join = join_of<Net, D>(options.device)},
              parameters_of(checkpoint, weights_, name, options), checkpoint.state.buffers)) {}

    /// Writes the network's outputs for one sample or a batch, one after another: `samples` are of Net::input_shape,
    /// channels last, `outputs` of Net::output_shape; of several outputs, those of the last. Throws InvalidArgument if
    /// the sizes do not fit, and for a sample that contains a NaN or an infinity (some layers would propagate it,
    /// others would not: a fused ReLU maps NaN to 0), or an id that is out of range.
    void predict(std::span<const Sample> samples, std::span<float> outputs) const {
        predict(view_of(samples), outputs);
    }
    /// The same for outputs by their names, from one forward pass; those that are not named are not written. Throws
    /// also for a name that the network does not have, or that is given twice.
    void predict(std::span<const Sample> samples, std::span<const NamedOutput> outputs) const {
        predict(view_of(samples), outputs);
    }
    void predict(std::span<const Sample> samples, std::initializer_list<NamedOutput> outputs) const {
        predict(view_of(samples), outputs);
    }

    /// The same for a batch in host memory, with a column per input of the network; other columns are not read. Throws
    /// InvalidArgument also for a column that is missing, or that has another type or other extents.
    void predict(const BatchView& samples, std::span<float> outputs) const {
        const std::size_t count = count_of(samples);
        Places places{};
        places.back() = checked_place(outputs, count, Net::outputs.size() - 1);
        run(samples, places);
    }
    void predict(const BatchView& samples, std::span<const NamedOutput> outputs) const {
        const std::size_t count = count_of(samples);
        require(!outputs.empty(), "predict needs at least one output");
        Places places{};
        for (const NamedOutput& each : outputs) {
            const std::size_t k = output_of_name(Net::outputs, each.name);
            require(places[k] == nullptr, "the output ", each.name, " is given twice");
            places[k] = checked_place(each.values, count, k);
        }
        run(samples, places);
    }
    void predict(const BatchView& samples, std::initializer_list<NamedOutput> outputs) const {
        predict(samples, std::span<const NamedOutput>(outputs.begin(), outputs.size()));
    }

    /// The names of the classes of a column of labels: element k is the name of label k, as in the training's data.
    /// Empty if the file does not have them.
    [[nodiscard, gnu::cold]] std::vector<std::string> classes(std::string_view column = target_column) const {
        const std::string* const names =
            info_.find(column == target_column ? std::string(classes_key) : text(classes_key, '.', column));
        return names == nullptr ? std::vector<std::string>() : list_elements(*names);
    }
    [[nodiscard]] std::int64_t max_batch() const { return max_batch_; }
    [[nodiscard]] int streams() const { return streams_.streams(); }
    /// The number of training steps before the checkpoint was written; 0 if the file does not state it.
    [[nodiscard]] std::int64_t step() const { return step_; }
    /// The parameters of the checkpoint that are used.
    [[nodiscard]] Weights weights() const { return weights_; }
    /// Bytes of device memory, parameters included.
    [[nodiscard]] std::size_t bytes() const { return streams_.bytes(); }

private:
    static_assert(!Net::valid ||  // then the network has reported its own error
                  static_assert_message<Net::template operations_diagnostic<D, typename Net::Precision, false>()>());

    /// The place of each output, null for one that is not written.
    using Places = std::array<float*, Net::outputs.size()>;

    [[nodiscard]] static BatchView view_of(std::span<const Sample> samples) {
        static_assert(!Net::valid || count_inputs(Net::layers) == 1,
                      "this network has several inputs: give predict() a BatchView with a column for each");
        constexpr auto sample = static_cast<std::size_t>(Net::input_shape.size());
        const std::size_t count = samples.size() / sample;
        require(samples.size() % sample == 0 && count >= 1, "samples of this network have ", sample,
                " values each, and ", samples.size(), " were given");
        const Column input{{input_column, element_type_of<Sample>, Net::input_shape}, samples.data()};
        return {static_cast<std::int64_t>(count), {input}};
    }

    [[nodiscard]] std::size_t count_of(const BatchView& samples) const {
        require(samples.size >= 1, "a prediction needs 1 sample or more, not ", samples.size);
        require(samples.size <= max_batch_, "this predictor takes at most ", max_batch_,
                max_batch_ == 1 ? " sample" : " samples", " at a time, and ", samples.size, " were given");
        return static_cast<std::size_t>(samples.size);
    }

    /// The place of output `k` of `count` samples.
    [[nodiscard]] static float* checked_place(std::span<float> place, std::size_t count, std::size_t k) {
        const NetworkOutput& output = Net::outputs[k];
        const auto size = count * static_cast<std::size_t>(output.shape.size());
        constexpr bool several = Net::outputs.size() > 1;
        require(place.size() == size, several ? "the output " : "the outputs",
                several ? output.name : std::string_view(), " of ", count, count == 1 ? " sample" : " samples",
                several ? " is " : " are ", size, " values, and there is room for ", place.size());
        return place.data();
    }

    void run(const BatchView& samples, const Places& places) const {
        require_inputs(samples, streams_.inputs());
        streams_.run(samples, places);
    }

    [[nodiscard, gnu::cold]] static Weights chosen(const Checkpoint& checkpoint, const std::string& name,
                                                   const Options& options) {
        const bool averages = !checkpoint.state.averages.empty();
        const Weights weights = options.weights.value_or(averages ? Weights::averages : Weights::trained);
        require<DataError>(
            weights == Weights::trained || averages, name,
            " has no moving averages: the training kept none, or the file is not one of a Cupola training");
        return weights;
    }

    [[nodiscard, gnu::cold]] static std::vector<float> parameters_of(const Checkpoint& checkpoint, Weights weights,
                                                                     const std::string& name, const Options& options) {
        const TrainingState& state = checkpoint.state;
        require<DataError>(state.parameters.size() == static_cast<std::size_t>(Net::parameter_elements) &&
                               state.buffers.size() == static_cast<std::size_t>(Net::buffer_elements),
                           name, " is a checkpoint of another network: it has ", state.parameters.size(), " and ",
                           state.buffers.size(), " elements of parameters and running statistics, not ",
                           Net::parameter_elements, " and ", Net::buffer_elements);
        if (options.network == NetworkInFile::equal) impl::require_network(name, checkpoint.network, Net::layers, true);
        std::vector<float> parameters;
        try {
            parameters = parameters_in_layout(Net::layers, state, weights == Weights::averages);
        } catch (const InvalidArgument& error) {
            throw DataError(text(name, " cannot be used: ", error.what()));
        }
        std::string found = non_finite_parameter(Net::layers, parameters);
        if (found.empty()) found = invalid_buffer(Net::layers, state.buffers);
        require<DataError>(found.empty(), name, " cannot be used: ", found);
        return parameters;
    }

    std::int64_t step_;
    CheckpointInfo info_;
    Weights weights_;
    std::int64_t max_batch_;
    InferenceStreams<D, typename Net::Precision::Activation> streams_;
};

}}  // namespace cupola::CUPOLA_ABI
