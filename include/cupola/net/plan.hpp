// SPDX-License-Identifier: Apache-2.0
//
// A plan: everything that running a network on one device with one batch size needs, made before the first step: the
// stages with their operations, and the place of every tensor in the arena. Running it allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/impl/folded_norm.hpp>
#include <cupola/net/impl/plan_ends.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/step_times.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a plan is for.
struct PlanOptions {
    std::int64_t batch = 1;
    bool training = true;
    /// Whether backward also gives the gradient of the batch itself.
    bool input_gradient = false;
    /// A plan for `forward_each`: every layer by itself, in a forward pass as training makes it.
    bool inspect = false;
    /// Whether replicas that run in step share the statistics of their batches: the plan is then run in segments.
    bool synchronized = false;
    bool operator==(const PlanOptions&) const = default;
};

/// The random numbers of one pass: see Pass.
struct PassKey {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
    bool training = true;
};

/// The arrays of a network's buffers, laid out as Net::buffer_elements says: running statistics, which a pass outside
/// training reads, and where a pass of training writes its batch's own. Updating the former with the latter is the
/// caller's.
struct PassBuffers {
    const float* running = nullptr;
    float* batch = nullptr;
};

/// Bytes of a plan's arena by what they hold.
struct PlanBytes {
    /// Activations and their gradients, from the type alone: `activation_bytes<Net>(batch)`.
    std::size_t activations = 0;
    /// What forward leaves for backward beside activations, packed weights, and scratch memory: the backend's.
    std::size_t saved = 0, packed = 0, scratch = 0;
    [[nodiscard]] std::size_t total() const { return activations + saved + packed + scratch; }
};

/// `T` is what activations are kept in. The batch, the output and their gradients are float whatever it is: a plan in another
/// type converts them, once each.
template <class Device, class T = float>
class Plan {
public:
    using Context = typename Device::Context;

    /// Makes the operations of `Net`. The network is named by a function only, so that this class is instantiated for
    /// each device, not for each network.
    template <Network Net>
        requires std::same_as<typename Net::Precision::Activation, T>
    static Plan make(Context& context, const PlanOptions& options) {
        return Plan(context, options, Net::rows, Net::fusion, &Net::template stage<Device, T>);
    }

    [[nodiscard]] const PlanOptions& options() const { return options_; }
    [[nodiscard]] const PlanBytes& bytes() const { return bytes_; }
    [[nodiscard]] std::span<const StageInfo> stages() const { return infos_; }

    /// Gives the plan its memory, of at least `bytes().total()`. Several plans may share it if they run one at a time
    /// and `prepare` is called when another has run.
    void bind(std::byte* arena) {
        arena_ = arena;
        ends_.bind(arena + bytes_.activations - ends_.bytes());
        saved_ = arena + bytes_.activations;
        packed_ = saved_ + bytes_.saved;
        scratch_ = packed_ + bytes_.packed;
    }

    /// From now on the time of every stage is added to `times`, until that is null.
    void time(StepTimes* times) { times_ = times; }

    /// Packs weights. To be called when the parameters, or the arena's contents, have changed. A plan that is not for training
    /// folds batch normalisations into the weights before them, and takes the running statistics for it.
    void prepare(Context& context, const float* parameters, const float* running = nullptr) {
        const Stopwatch watch(times_, StepPart::packing);
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            if (infos_[i].folded_norm != no_row) impl::fold_norm<Device>(context, rows_, infos_[i], parameters, running, packed_ + packed_at_[i]);
            stages_[i]->prepare(pass(context, i, nullptr, parameters, nullptr, {}));
        }
    }

    /// Runs the network on `batch` and returns its output, in the arena.
    const float* forward(Context& context, const float* batch, const float* parameters, const PassKey& key,
                         const PassBuffers& buffers = {}) {
        check_buffers(key, buffers);
        const T* const samples = ends_.take_batch(context, batch);
        run_forward(context, 0, stages_.size(), samples, parameters, key, buffers);
        return ends_.give_output(context, value(infos_.size(), samples));
    }

    /// Runs the network layer by layer, as training does (the random numbers are those of `key`), and calls
    /// visit(row, values, elements) while each layer's output is in the arena: what fusion never writes, and what is
    /// written over, can be looked at. For a plan made with `inspect`.
    template <class Visit>
    void forward_each(Context& context, const float* batch, const float* parameters, const float* buffers,
                      const PassKey& key, Visit&& visit) {
        require(options_.inspect, "forward_each takes a plan that was made with PlanOptions::inspect");
        check_buffers(key, {.running = buffers});
        const T* const samples = ends_.take_batch(context, batch);
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            run_forward(context, i, i + 1, samples, parameters, key, {.running = buffers});
            visit(infos_[i].row, value(i + 1, samples), options_.batch * infos_[i].output.size());
        }
    }

    /// Where the loss writes the gradient of the output.
    [[nodiscard]] float* output_gradient() { return ends_.output_gradient(gradient_at(infos_.size())); }
    /// After backward, the gradient of the batch, if the plan was made with it.
    [[nodiscard]] const float* input_gradient() { return ends_.input_gradient(gradient_at(0)); }

    /// Writes every parameter's gradient to `gradients`, laid out as the parameters are, or adds to it.
    void backward(Context& context, const float* batch, const float* parameters, float* gradients, const PassKey& key,
                  bool accumulate = false) {
        ends_.take_output_gradient(context, gradient_at(infos_.size()));
        run_backward(context, infos_.size(), lowest_, ends_.batch(batch), parameters, gradients, key, accumulate);
        if (options_.input_gradient) ends_.give_input_gradient(context, gradient_at(0));
    }

    // Synchronised statistics. Each replica has a plan, made with `synchronized`, and memory of its own, and all run in
    // step: a pass is exchanges() + 1 segments, and between two of them the replicas' sums are merged.
    //
    //   for k in 0 .. exchanges():  each replica: forward_segment(k, ..., merged, partial);  merge(forward, k, partials, merged)
    //   each replica: the loss
    //   for k in 0 .. exchanges():  each replica: backward_segment(k, ...);                  merge(backward, k, partials, merged)
    //
    // There is nothing to merge after the last segment. Backward's exchange k is forward's exchanges() - 1 - k.

    [[nodiscard]] std::size_t exchanges() const { return exchanges_.size(); }
    /// The `double`s of the partial and of the merged sums of exchange k.
    [[nodiscard]] std::int64_t exchange_size(Direction direction, std::size_t k) const {
        return stages_[exchanging(direction, k)]->exchange_size();
    }
    /// Merges the replicas' sums of exchange k, in their order; replicas without samples have none (null).
    void merge(Direction direction, std::size_t k, std::span<const double* const> partials, double* merged) const {
        stages_[exchanging(direction, k)]->merge_sums(direction, partials, merged);
    }

    /// Segment k of forward: goes on with the merged sums of exchange k - 1, runs up to exchange k and writes its sums to
    /// `partial`. Segment 0 takes no merged sums; the last writes none and returns the output, the others null.
    const float* forward_segment(Context& context, std::size_t k, const float* batch, const float* parameters,
                                 const PassKey& key, const PassBuffers& buffers, const double* merged, double* partial) {
        std::size_t begin = 0;
        const T* const samples = k == 0 ? ends_.take_batch(context, batch) : ends_.batch(batch);
        if (k > 0) {
            begin = exchanging(Direction::forward, k - 1);
            const Stopwatch watch(times_, Direction::forward, begin);
            stages_[begin]->apply_sums(Direction::forward, pass(context, begin, samples, parameters, nullptr, key, buffers),
                                       merged);
            ++begin;
        }
        const std::size_t end = k == exchanges() ? stages_.size() : exchanging(Direction::forward, k);
        run_forward(context, begin, end, samples, parameters, key, buffers);
        if (k == exchanges()) return ends_.give_output(context, value(infos_.size(), samples));
        const Stopwatch watch(times_, Direction::forward, end);
        stages_[end]->write_sums(Direction::forward, pass(context, end, samples, parameters, nullptr, key, buffers), partial);
        return nullptr;
    }

    /// Segment k of backward, the same way; see `backward` for the rest. Each replica's gradient is that of the mean over
    /// its own samples, as the averaging policies weigh it.
    void backward_segment(Context& context, std::size_t k, const float* batch, const float* parameters, float* gradients,
                          const PassKey& key, bool accumulate, const double* merged, double* partial) {
        const T* const samples = ends_.batch(batch);
        const auto call = [&](std::size_t i) {
            Pass<Device, T> p = pass(context, i, samples, parameters, gradients, key);
            p.accumulate = accumulate;
            return p;
        };
        if (k == 0) ends_.take_output_gradient(context, gradient_at(infos_.size()));
        std::size_t end = infos_.size();
        if (k > 0) {
            end = exchanging(Direction::backward, k - 1);
            const Stopwatch watch(times_, Direction::backward, end);
            stages_[end]->apply_sums(Direction::backward, call(end), merged);
        }
        const std::size_t begin = k == exchanges() ? lowest_ : exchanging(Direction::backward, k) + 1;
        run_backward(context, end, begin, samples, parameters, gradients, key, accumulate);
        if (k < exchanges()) {
            const Stopwatch watch(times_, Direction::backward, begin - 1);
            stages_[begin - 1]->write_sums(Direction::backward, call(begin - 1), partial);
        }
        if (k == exchanges() && options_.input_gradient) ends_.give_input_gradient(context, gradient_at(0));
    }

    /// Value `v` of the stages: 0 the batch, k + 1 the output of stage k. Valid only while the memory plan keeps it.
    [[nodiscard]] const T* value(std::size_t v, const T* batch) {
        const std::size_t storage = storage_of(infos_, v);
        return storage == 0 ? batch : at(lifetimes_[storage]);
    }

private:
    using StageFunction = std::unique_ptr<Stage<Device, T>> (*)(const StageInfo&, const Site<Device, T>&);

    [[gnu::cold]] Plan(Context& context, const PlanOptions& options, std::span<const Row> rows, bool fusion, StageFunction make_one)
        : options_(options), rows_(rows), infos_(rows.size()) {
        infos_.resize(fuse(rows, fusion && !options.inspect, infos_, options.training || options.inspect));
        lifetimes_.resize(lifetimes_of(infos_.size()));
        const bool backward = options.training && !options.inspect;
        bytes_.activations = plan_activations(infos_, options.batch, backward, options.input_gradient, lifetimes_, sizeof(T));
        const Shape &input = rows.front().input, &output = rows.back().output;
        ends_ = {plan_ends(input, output, options.batch, backward, options.input_gradient, sizeof(T)), options.batch * input.size(),
                 options.batch * output.size()};
        bytes_.activations += ends_.bytes();
        lowest_ = lowest_stage(infos_, options.input_gradient);
        saved_at_.resize(infos_.size());
        packed_at_.resize(infos_.size());
        for (std::size_t i = 0; i < infos_.size(); ++i) {
            const Site<Device, T> site{.context = context,
                                    .batch = options.batch,
                                    .input = infos_[i].input,
                                    .output = infos_[i].output,
                                    .layer = static_cast<std::uint32_t>(infos_[i].row),
                                    .activation = infos_[i].activation,
                                    .masked_by_next = infos_[i].masked_by_next,
                                    .masks_for_previous = infos_[i].masks_for_previous,
                                    .folded_norm = infos_[i].folded_norm != no_row,
                                    .training = backward,
                                    .input_gradient = backward && wants_gradient(infos_[i].reads)};
            stages_.push_back(make_one(infos_[i], site));
            if (options.synchronized && stages_.back()->exchange_size() > 0) exchanges_.push_back(i);
            const MemoryNeeds needs = stages_.back()->needs();
            saved_at_[i] = bytes_.saved;
            packed_at_[i] = bytes_.packed;
            if (backward) bytes_.saved += aligned(needs.saved);
            bytes_.packed += aligned(needs.packed) + impl::folded_norm_places(rows, infos_[i]).bytes;
            bytes_.scratch = std::max(bytes_.scratch, aligned(needs.scratch));
        }
    }

    [[nodiscard]] bool wants_gradient(std::size_t v) const { return v > lowest_ || options_.input_gradient; }
    [[nodiscard]] std::size_t exchanging(Direction direction, std::size_t k) const {
        return exchanges_[direction == Direction::forward ? k : exchanges_.size() - 1 - k];
    }

    [[nodiscard]] T* at(const Lifetime& lifetime) { return reinterpret_cast<T*>(arena_ + lifetime.offset); }
    [[nodiscard]] T* gradient_at(std::size_t v) { return at(lifetimes_[gradient_entry(infos_, v)]); }

    [[gnu::cold]] void check_buffers(const PassKey& key, const PassBuffers& buffers) const {
        if (trains(key) || buffers.running != nullptr) return;
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            require(rows_[i].buffers.count == 0, "outside training the network reads running statistics (",
                    rows_[i].buffers.count == 0 ? std::string() : buffer_name(rows_, i, 0), "), and was given none");
        }
    }
    /// Whether a pass is one of training, backward or not.
    [[nodiscard]] bool trains(const PassKey& key) const { return key.training && (options_.training || options_.inspect); }

    void run_forward(Context& context, std::size_t begin, std::size_t end, const T* batch, const float* parameters,
                     const PassKey& key, const PassBuffers& buffers) {
        for (std::size_t i = begin; i < end; ++i) {
            if (infos_[i].view) continue;
            const Stopwatch watch(times_, Direction::forward, i);
            stages_[i]->forward(pass(context, i, batch, parameters, nullptr, key, buffers));
        }
    }

    /// From stage `end` - 1 down to stage `begin`.
    void run_backward(Context& context, std::size_t end, std::size_t begin, const T* batch, const float* parameters,
                      float* gradients, const PassKey& key, bool accumulate) {
        for (std::size_t i = end; i-- > begin;) {
            if (infos_[i].view && infos_[i].second_reader == no_value) continue;
            const Stopwatch watch(times_, Direction::backward, i);
            Pass<Device, T> p = pass(context, i, batch, parameters, gradients, key);
            p.accumulate = accumulate;
            stages_[i]->backward(p);
        }
    }

    Pass<Device, T> pass(Context& context, std::size_t i, const T* batch, const float* parameters, float* gradients,
                         const PassKey& key, const PassBuffers& buffers = {}) {
        const StageInfo& info = infos_[i];
        const bool two_inputs = info.also_reads != no_value;
        Pass<Device, T> p{.context = context};
        p.input = value(info.reads, batch);
        if (two_inputs) p.second_input = value(info.also_reads, batch);
        // Only a view of the batch itself has the batch as its output, and a view is never run forward.
        p.output = const_cast<T*>(value(i + 1, batch));
        if (gradients != nullptr) {
            const auto gradient = [&](std::size_t entry) { return at(lifetimes_[entry]); };
            p.output_gradient = gradient(gradient_entry(infos_, i + 1));
            if (wants_gradient(info.reads)) p.input_gradient = gradient(input_gradient_entry(infos_, i, false));
            if (two_inputs && wants_gradient(info.also_reads)) {
                p.second_input_gradient = gradient(input_gradient_entry(infos_, i, true));
            }
            if (info.second_reader != no_value) p.second_output_gradient = gradient(second_gradient_entry(infos_, i));
        }
        const Row& row = rows_[info.row];
        for (std::size_t k = 0; k < row.parameters.count; ++k) {
            p.parameters[k] = parameters + row.offsets[k];
            if (gradients != nullptr) p.parameter_gradients[k] = gradients + row.offsets[k];
        }
        for (std::size_t k = 0; k < row.buffers.count; ++k) {
            if (buffers.running != nullptr) p.buffers[k] = buffers.running + row.buffer_offsets[k];
            if (buffers.batch != nullptr) p.statistics[k] = buffers.batch + row.buffer_offsets[k];
        }
        p.saved = saved_ + saved_at_[i];
        const impl::FoldedNormPlaces folded = impl::folded_norm_places(rows_, info);
        p.packed = packed_ + packed_at_[i] + folded.bytes;
        if (folded.bytes != 0) {
            p.parameters[0] = reinterpret_cast<const float*>(packed_ + packed_at_[i]);
            p.parameters[1] = reinterpret_cast<const float*>(packed_ + packed_at_[i] + folded.bias);
        }
        p.scratch = scratch_;
        p.training = trains(key);
        p.seed = key.seed;
        p.step = key.step;
        p.first_sample = key.first_sample;
        return p;
    }

    PlanOptions options_;
    std::span<const Row> rows_;
    std::vector<StageInfo> infos_;
    std::vector<Lifetime> lifetimes_;
    std::vector<std::unique_ptr<Stage<Device, T>>> stages_;
    std::vector<std::size_t> saved_at_, packed_at_;
    /// The stages that exchange sums with other replicas.
    std::vector<std::size_t> exchanges_;
    std::size_t lowest_ = 0;
    PlanBytes bytes_;
    impl::PlanEnds<Device, T> ends_;
    StepTimes* times_ = nullptr;
    std::byte *arena_ = nullptr, *saved_ = nullptr, *packed_ = nullptr, *scratch_ = nullptr;
};

/// The plan of a network on a device, in the network's precision.
template <Network Net, class Device>
using PlanOf = Plan<Device, typename Net::Precision::Activation>;

}  // namespace cupola::inline CUPOLA_ABI
