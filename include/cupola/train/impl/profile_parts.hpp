// SPDX-License-Identifier: Apache-2.0
//
// Computes the parts of a profile from the times of steps: medians, and the operations and bytes of each part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/pass_list.hpp>
#include <cupola/net/pipeline/measured_split.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/train/step_profile.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The properties of a training that a profile needs.
struct ProfiledTraining {
    std::span<const LayerInfo> layers;
    bool fusion = true;
    /// The bytes of one element of an activation.
    std::size_t element_bytes = sizeof(float);
    int replicas = 1, devices = 1;
    double samples_per_step = 0;
    int state_arenas = 0;
    std::int64_t parameter_elements = 0, regularized_elements = 0;
};

/// Makes a training record its times in `times` during the lifetime of this object.
template <class Training>
class TimedTraining {
public:
    TimedTraining(Training& training, StepTimes& times) : training_(&training) { training.time_steps(&times); }
    TimedTraining(const TimedTraining&) = delete;
    TimedTraining& operator=(const TimedTraining&) = delete;
    ~TimedTraining() {
        try {
            training_->time_steps(nullptr);
        } catch (...) {  // an error of a step in flight, after the one that ends the profile
        }
    }

private:
    Training* training_;
};

class ProfileParts {
public:
    ProfileParts(const StepTimes& times, const ProfiledTraining& training)
        : times_(times), training_(training), nodes_(training.layers.size()), rests_(times.steps()) {
        nodes_.resize(fuse(training.layers, training.fusion, nodes_));
        recomputed_ = find_recomputed(nodes_, false);
        node_seconds_.resize(nodes_.size());
        for (std::size_t step = 0; step < rests_.size(); ++step) rests_[step] = times.seconds(step);
    }

    [[gnu::cold]] StepProfile find(const PeakRates& rates) {
        const double parameters = sizeof(float) * static_cast<double>(training_.parameter_elements);
        const double replicas = training_.replicas;
        add(StepPart::data, "data", 0);
        add(StepPart::packing, "packing of weights", 0);
        for (std::size_t i = 0; i < nodes_.size(); ++i) add(Direction::forward, i);
        add(StepPart::loss, "loss", 0);
        for (std::size_t i = nodes_.size(); i-- > 0;) add(Direction::backward, i);
        add(StepPart::waiting, "waiting for other devices", 0);
        // Per slice of a device: all rows are read, the mean is written if there is more than one row, and it is
        // checked.
        add(StepPart::averaging, replicas > 1 ? "averaging" : "check of the gradient",
            parameters * (replicas > 1 ? replicas + 2 : 1) / training_.devices,
            replicas > 1 ? parameters / training_.devices : 0);
        add(StepPart::regularization, "regularisers' losses",
            sizeof(float) * static_cast<double>(training_.regularized_elements));
        add(StepPart::optimizer, "optimiser", parameters * (3 + 2 * training_.state_arenas));
        add(StepPart::moving_average, "moving average", 3 * parameters);
        add(StepPart::statistics, "running statistics", 0);
        std::vector<double> steps;
        for (std::size_t step = 0; step < times_.steps(); ++step) steps.push_back(times_.seconds(step));
        return {.steps = static_cast<std::int64_t>(times_.steps()),
                .samples_per_step = training_.samples_per_step,
                .seconds = median(std::move(steps)),
                .rest = median(rests_),
                .rates = rates,
                .parts = std::move(parts_),
                .splits = splits()};
    }

private:
    [[gnu::cold]] static double median(std::vector<double> values) {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        return *middle;
    }

    /// Adds the part to which `entry(step)` belongs, unless it never ran; `calls` is the number of its runs in a step.
    template <class Entry, class Work>
    [[gnu::cold]] void add_part(ProfiledPart part, Entry&& entry, Work&& work) {
        std::vector<double> seconds;
        std::int64_t calls = 0;
        for (std::size_t step = 0; step < times_.steps(); ++step) {
            const StepTimes::Entry& of_step = entry(step);
            seconds.push_back(of_step.seconds);
            rests_[step] -= of_step.seconds;
            calls += of_step.calls;
        }
        if (calls == 0) return;
        part.seconds = median(std::move(seconds));
        work(part, static_cast<double>(calls) / static_cast<double>(times_.steps()));
        parts_.push_back(std::move(part));
    }

    [[gnu::cold]] void add(StepPart which, const char* what, double bytes, double written = 0) {
        add_part(
            {.name = {}, .what = what}, [&](std::size_t step) -> const auto& { return times_.at(step, which); },
            [&](ProfiledPart& part, double) {
                part.bytes = bytes;
                part.written = written;
                if (which == StepPart::data) node_seconds_.front() += part.seconds;
                if (which == StepPart::loss) node_seconds_.back() += part.seconds;
            });
    }

    [[gnu::cold]] void add(Direction direction, std::size_t i) {
        const NodeInfo& node = nodes_[i];
        ProfiledPart named{.name = std::string(training_.layers[node.layer].name),
                           .what = {},
                           .pass = direction == Direction::forward ? "forward" : "backward"};
        for (std::size_t layer = node.layer; layer < node.layer + node.layers; ++layer) {
            named.what += text(layer > node.layer ? " + " : "", training_.layers[layer].type);
        }
        add_part(
            std::move(named), [&](std::size_t step) -> const auto& { return times_.at(step, direction, i); },
            [&](ProfiledPart& part, double calls) {
                node_seconds_[i] += part.seconds;
                part.calls = calls;
                find_work(part, i, direction, calls);
            });
    }

    [[nodiscard]] std::vector<MeasuredSplit> splits() const {
        constexpr std::size_t max_parts = 4;
        std::vector<MeasuredSplit> all;
        for (std::size_t parts = 2; parts <= max_parts; ++parts) {
            MeasuredSplit split = measured_split(training_.layers, training_.fusion, node_seconds_, parts);
            if (!split.seconds.empty()) all.push_back(std::move(split));
        }
        return all;
    }

    /// Computes the work of node `i` in a step, for all batches of the first device together. The time of backward
    /// includes that of a second forward pass.
    [[gnu::cold]] void find_work(ProfiledPart& part, std::size_t i, Direction direction, double calls) const {
        const NodeInfo& node = nodes_[i];
        const int own_replicas = training_.replicas / training_.devices;
        const double samples = training_.samples_per_step * own_replicas / training_.replicas;
        const auto activations = [&](const Shape& shape) {
            return samples * static_cast<double>(shape.size()) * static_cast<double>(training_.element_bytes);
        };
        double multiply_adds = 0, parameters = 0;
        for (std::size_t k = node.layer; k < node.layer + node.layers; ++k) {
            const LayerInfo& layer = training_.layers[k];
            multiply_adds += static_cast<double>(layer.multiply_adds);
            const ParameterList& read = parameters_of_layer(training_.layers, k).parameters;
            for (std::size_t p = 0; p < read.count; ++p) {
                parameters += sizeof(float) * static_cast<double>(read.list[p].shape.size());
            }
        }
        const double second = node.also_reads == no_value ? 0 : activations(second_input_of(nodes_, i)),
                     inputs = activations(node.input) + second, output = activations(node.output);
        const auto add_own = [&](Direction of) {
            const OperationWork& work = times_.work(of, i);
            part.work.operations += work.operations * samples;
            part.work.cached_bytes += work.cached_bytes * samples;
        };
        const bool both = direction == Direction::backward && recomputed_[i];
        if (both) calls /= 2;
        if (direction == Direction::forward || both) {
            part.operations = 2 * multiply_adds * samples;
            part.bytes = inputs + output + calls * parameters;
            part.written = output;
            add_own(Direction::forward);
            if (!both) return;
        }
        add_own(Direction::backward);
        const bool wanted = needs_gradient(nodes_, node.reads, lowest_node(nodes_, false), false), read = !node.view;
        part.operations += 2 * multiply_adds * samples * ((parameters > 0 ? 1 : 0) + (wanted ? 1 : 0));
        part.bytes += output * (node.adds_two_gradients() ? 2 : 1) + calls * parameters;  // gradients: in, out
        if (wanted) part.bytes += inputs + calls * parameters;
        part.written += calls * parameters + (wanted && !node.input_gradient_in_place ? inputs : 0);
        if (read && node.backward_reads_input) part.bytes += activations(node.input);
        if (read && node.backward_reads_second_input) part.bytes += second;
        if (read && node.backward_reads_output) part.bytes += output;
    }

    const StepTimes& times_;
    ProfiledTraining training_;
    std::vector<NodeInfo> nodes_;
    FixedArray<bool> recomputed_;
    /// The time of each step outside all parts.
    std::vector<double> rests_;
    /// The time of each node in both directions.
    std::vector<double> node_seconds_;
    std::vector<ProfiledPart> parts_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
