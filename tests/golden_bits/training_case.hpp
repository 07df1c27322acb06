// SPDX-License-Identifier: Apache-2.0
//
// One training on data made by a counter, and the hash of its result.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/state_transfer.hpp>

namespace golden_bits {

using namespace cupola;

/// Those of the table.
inline constexpr std::int64_t steps_of_a_case = 50;

/// Everything that a case sets beside the types of its training.
struct Setting {
    int replicas = 1;
    int devices = 1;
    int threads = 1;
    std::int64_t steps = steps_of_a_case;
    std::int64_t batch_size = 2;
    int gradient_accumulation_steps = 1;
    /// Each replica's last batch of a step has one sample less than the one before: 2, 1, 0, 2, ...
    bool unequal = false;
    double average_decay = 0;
    const ConvolutionAlgorithm* convolution = nullptr;
    /// Half way, the state goes into a new training with all replicas on one device, which makes the other steps.
    bool restored = false;
    /// See Case.
    bool by_teams = false;
};

struct Hashes {
    /// The hashes of the parameters and of the whole state: parameters, averages, the optimizer's arenas, statistics.
    std::uint64_t parameters = 0, state = 0;
    bool operator==(const Hashes&) const = default;
};

struct Case {
    std::string name;
    std::function<Hashes(int threads, std::int64_t steps)> run;
    /// Run with teams of several threads too: what is not is element-wise, or the same code as another case.
    bool by_teams = false;
};

/// splitmix64's output function (Steele, Lea, Flood 2014): all 64 bits of the result depend on all of `x`.
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

/// A hash of the bits of floats, in order.
[[nodiscard]] inline std::uint64_t hash_of_bits(std::uint64_t hash, std::span<const float> values) {
    for (const float value : values) hash = mixed(hash ^ std::bit_cast<std::uint32_t>(value));
    return mixed(hash ^ values.size());
}

/// Batches whose sample i is a function of i alone: values between -1.5 and 1.5 whose mean depends on the label, so
/// that there is something to learn.
class CountedSamples {
public:
    CountedSamples(const Shape& shape, std::int32_t classes, const Setting& setting)
        : shape_(shape), classes_(classes), setting_(setting), buffers_(static_cast<std::size_t>(setting.replicas)) {
        for (Buffer& buffer : buffers_) {
            buffer.samples.resize(static_cast<std::size_t>(setting.batch_size * shape.size()));
            buffer.labels.resize(static_cast<std::size_t>(setting.batch_size));
        }
    }

    [[nodiscard]] std::int64_t batch_size() const { return setting_.batch_size; }
    [[nodiscard]] int replicas() const { return setting_.replicas; }
    [[nodiscard]] const Shape& sample_shape() const { return shape_; }

    template <class Context>
    [[nodiscard]] BatchView operator()(std::int64_t step, int replica, Context&) {
        Buffer& buffer = buffers_[static_cast<std::size_t>(replica)];
        const std::int64_t first = (step * setting_.replicas + replica) * setting_.batch_size;
        for (std::int64_t i = 0; i < setting_.batch_size; ++i) make_sample(first + i, i, buffer);
        return {buffer.samples.data(), buffer.labels.data(), size_of(step, replica), shape_};
    }

private:
    struct Buffer {
        std::vector<float> samples;
        std::vector<std::int32_t> labels;
    };

    [[nodiscard]] std::int64_t size_of(std::int64_t step, int replica) const {
        const bool last_part = step % setting_.gradient_accumulation_steps == setting_.gradient_accumulation_steps - 1;
        if (!setting_.unequal || !last_part) return setting_.batch_size;
        return setting_.batch_size - replica % (setting_.batch_size + 1);
    }

    void make_sample(std::int64_t index, std::int64_t place, Buffer& buffer) const {
        const std::uint64_t seed = mixed(static_cast<std::uint64_t>(index));
        const auto label = static_cast<std::int32_t>(seed % static_cast<std::uint64_t>(classes_));
        buffer.labels[static_cast<std::size_t>(place)] = label;
        const float mean = 0.5F * static_cast<float>(2 * label - classes_ + 1) / static_cast<float>(classes_);
        const std::span values(buffer.samples.data() + place * shape_.size(), static_cast<std::size_t>(shape_.size()));
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto bits = static_cast<std::int32_t>(mixed(seed + i) >> 40);
            values[i] = mean + static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 23);
        }
    }

    Shape shape_;
    std::int32_t classes_;
    Setting setting_;
    std::vector<Buffer> buffers_;
};

[[nodiscard]] inline Hashes hashes_of(const TrainingState& state) {
    Hashes hashes;
    hashes.parameters = hash_of_bits(0, state.parameters);
    hashes.state = hash_of_bits(hashes.parameters, state.averages);
    for (const OptimizerState& arena : state.optimizer) hashes.state = hash_of_bits(hashes.state, arena.values);
    hashes.state = hash_of_bits(hashes.state, state.buffers);
    return hashes;
}

/// The bits that a training with this loss, optimizer and policy for statistics ends with.
template <class Net, class Loss, class Optimizer, class Statistics = FirstReplica>
[[nodiscard]] Hashes run_training(const Optimizer& optimizer, const Setting& setting) {
    using Training = DataParallel<Net, Loss, Optimizer, ConcatMean, Host, Statistics>;
    typename Training::Options options;
    options.replicas = setting.replicas;
    options.devices = setting.devices;
    options.device.threads = setting.threads;
    options.device.convolution = setting.convolution;
    options.batch_size = setting.batch_size;
    if (setting.unequal) options.other_batch_sizes = {1};
    options.gradient_accumulation_steps = setting.gradient_accumulation_steps;
    options.seed = 11;
    options.optimizer = optimizer;
    options.moving_average.decay = setting.average_decay;

    CountedSamples batches(Net::input_shape, static_cast<std::int32_t>(Net::output_shape.size()), setting);
    const auto train = [&](Training& training, std::int64_t count) {
        for (std::int64_t step = 0; step < count; ++step) training.step(batches);
        return training.state();
    };
    const auto train_new = [&](std::int64_t count) {
        Training training(options);
        return train(training, count);
    };
    if (!setting.restored) return hashes_of(train_new(setting.steps));
    const TrainingState half = train_new(setting.steps / 2);
    options.devices = 1;
    Training other(options);
    other.restore(half);
    return hashes_of(train(other, setting.steps - setting.steps / 2));
}

/// 0 for a node that runs its layer's operation, 1 and 2 for one of a pooling and a normalisation or the other way round:
/// its row of the table of fusions, behind those that make no operation.
[[nodiscard]] inline std::size_t pair_of(const NodeInfo& node) {
    constexpr std::size_t rows_without_operation = 2;
    return node.pattern == no_pattern ? 0 : node.pattern - rows_without_operation + 1;
}

/// A hash of what a plan of the network is made of: the list that the fusion pass leaves.
template <class Net>
[[nodiscard]] std::uint64_t hash_of_plan(bool training) {
    std::vector<NodeInfo> nodes(Net::layers.size());
    nodes.resize(fuse(Net::layers, Net::fusion, nodes, training));
    std::uint64_t hash = mixed(nodes.size());
    const auto add = [&](auto value) { hash = mixed(hash ^ static_cast<std::uint64_t>(value)); };
    for (const NodeInfo& node : nodes) {
        add(node.layer), add(node.layers), add(node.input.size()), add(node.output.size());
        add(node.activation), add(pair_of(node)), add(node.view), add(node.has_parameters), add(node.folded_norm);
        add(node.backward_reads_input), add(node.backward_reads_output), add(node.reads), add(node.also_reads);
        add(node.relu_mask_applied_by_next), add(node.applies_relu_mask_of_previous), add(node.second_reader);
        add(node.second_reader_adds);
    }
    return hash;
}

/// The plans of training and of evaluation, in place of a training's two hashes.
template <class Net>
[[nodiscard]] Case plan_case(const std::string& name) {
    return {"plan/" + name, [](int, std::int64_t) {
                return Hashes{hash_of_plan<Net>(true), hash_of_plan<Net>(false)};
            }};
}

/// The cases of each network, in a file of its own.
[[nodiscard]] std::vector<Case> tutorial_cases();
[[nodiscard]] std::vector<Case> resnet_cases();

}  // namespace golden_bits
