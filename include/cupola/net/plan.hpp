// SPDX-License-Identifier: Apache-2.0
//
// A plan: everything that running a network on one device with one batch size needs, made before the first step: the
// stages with their operations, and the place of every tensor in the arena. Running it allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cupola/net/sequential.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a plan is for.
struct PlanOptions {
    std::int64_t batch = 1;
    bool training = true;
    /// Whether backward also gives the gradient of the batch itself.
    bool input_gradient = false;
};

/// The random numbers of one pass: see Pass.
struct PassKey {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
    bool training = true;
};

/// Bytes of a plan's arena by what they hold.
struct PlanBytes {
    /// Activations and their gradients, from the type alone: `activation_bytes<Net>(batch)`.
    std::size_t activations = 0;
    /// What forward leaves for backward beside activations, packed weights, and scratch memory: the backend's.
    std::size_t saved = 0, packed = 0, scratch = 0;
    [[nodiscard]] std::size_t total() const { return activations + saved + packed + scratch; }
};

template <class Device>
class Plan {
public:
    using Context = typename Device::Context;

    /// Makes the operations of `Net`. The network is named by a function only, so that this class is instantiated for
    /// each device, not for each network.
    template <Network Net>
    static Plan make(Context& context, const PlanOptions& options) {
        return Plan(context, options, Net::rows, Net::fusion, &Net::template stage<Device>);
    }

    [[nodiscard]] const PlanOptions& options() const { return options_; }
    [[nodiscard]] const PlanBytes& bytes() const { return bytes_; }
    [[nodiscard]] std::span<const StageInfo> stages() const { return infos_; }

    /// Gives the plan its memory, of at least `bytes().total()`. Several plans may share it if they run one at a time
    /// and `prepare` is called when another has run.
    void bind(std::byte* arena) {
        arena_ = arena;
        saved_ = arena + bytes_.activations;
        packed_ = saved_ + bytes_.saved;
        scratch_ = packed_ + bytes_.packed;
    }

    /// Packs weights. To be called when the parameters, or the arena's contents, have changed.
    void prepare(Context& context, const float* parameters) {
        for (std::size_t i = 0; i < stages_.size(); ++i) stages_[i]->prepare(pass(context, i, nullptr, parameters, nullptr, {}));
    }

    /// Runs the network on `batch` and returns its output, in the arena.
    const float* forward(Context& context, const float* batch, const float* parameters, const PassKey& key) {
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            if (!infos_[i].view) stages_[i]->forward(pass(context, i, batch, parameters, nullptr, key));
        }
        return value(infos_.size(), batch);
    }

    /// Where the loss writes the gradient of the output.
    [[nodiscard]] float* output_gradient() { return gradient(infos_.size()); }
    /// After backward, the gradient of the batch, if the plan was made with it.
    [[nodiscard]] const float* input_gradient() { return gradient(0); }

    /// Writes every parameter's gradient to `gradients`, laid out as the parameters are, or adds to it.
    void backward(Context& context, const float* batch, const float* parameters, float* gradients, const PassKey& key,
                  bool accumulate = false) {
        for (std::size_t i = infos_.size(); i-- > lowest_;) {
            if (infos_[i].view) continue;
            Pass<Device> p = pass(context, i, batch, parameters, gradients, key);
            p.accumulate = accumulate;
            stages_[i]->backward(p);
        }
    }

    /// The value that stage `i` reads, `i` = the number of stages for the output. Valid only while the memory plan keeps it.
    [[nodiscard]] const float* value(std::size_t i, const float* batch) {
        const std::size_t storage = storage_of(infos_, i);
        return storage == 0 ? batch : at(lifetimes_[storage]);
    }

private:
    using StageFunction = std::unique_ptr<Stage<Device>> (*)(std::size_t, const Site<Device>&);

    [[gnu::cold]] Plan(Context& context, const PlanOptions& options, std::span<const Row> rows, bool fusion, StageFunction make_one)
        : options_(options), rows_(rows), infos_(rows.size()) {
        infos_.resize(fuse(rows, fusion, infos_));
        lifetimes_.resize(2 * infos_.size() + 2);
        bytes_.activations =
            plan_activations(infos_, options.batch, options.training, options.input_gradient, lifetimes_);
        while (!options.input_gradient && lowest_ < infos_.size() && !infos_[lowest_].has_parameters) ++lowest_;
        saved_at_.resize(infos_.size());
        packed_at_.resize(infos_.size());
        for (std::size_t i = 0; i < infos_.size(); ++i) {
            const Site<Device> site{.context = context,
                                    .batch = options.batch,
                                    .input = infos_[i].input,
                                    .output = infos_[i].output,
                                    .layer = static_cast<std::uint32_t>(infos_[i].row),
                                    .activation = infos_[i].activation,
                                    .masked_by_next = infos_[i].masked_by_next,
                                    .masks_for_previous = infos_[i].masks_for_previous,
                                    .training = options.training,
                                    .input_gradient = options.training && wants_input_gradient(i)};
            stages_.push_back(make_one(infos_[i].row, site));
            const MemoryNeeds needs = stages_.back()->needs();
            saved_at_[i] = bytes_.saved;
            packed_at_[i] = bytes_.packed;
            if (options.training) bytes_.saved += aligned(needs.saved);
            bytes_.packed += aligned(needs.packed);
            bytes_.scratch = std::max(bytes_.scratch, aligned(needs.scratch));
        }
    }

    [[nodiscard]] bool wants_input_gradient(std::size_t i) const { return i > lowest_ || options_.input_gradient; }

    [[nodiscard]] float* at(const Lifetime& lifetime) { return reinterpret_cast<float*>(arena_ + lifetime.offset); }
    [[nodiscard]] float* gradient(std::size_t i) {
        return at(lifetimes_[infos_.size() + 1 + storage_of(infos_, i)]);
    }

    Pass<Device> pass(Context& context, std::size_t i, const float* batch, const float* parameters, float* gradients,
                      const PassKey& key) {
        Pass<Device> p{.context = context};
        p.input = value(i, batch);
        // Only a view of the batch itself has the batch as its output, and a view is never run.
        p.output = const_cast<float*>(value(i + 1, batch));
        if (gradients != nullptr) {
            p.output_gradient = gradient(i + 1);
            p.input_gradient = wants_input_gradient(i) ? gradient(i) : nullptr;
        }
        const Row& row = rows_[infos_[i].row];
        for (std::size_t k = 0; k < row.parameters.count; ++k) {
            p.parameters[k] = parameters + row.offsets[k];
            if (gradients != nullptr) p.parameter_gradients[k] = gradients + row.offsets[k];
        }
        p.saved = saved_ + saved_at_[i];
        p.packed = packed_ + packed_at_[i];
        p.scratch = scratch_;
        p.training = key.training && options_.training;
        p.seed = key.seed;
        p.step = key.step;
        p.first_sample = key.first_sample;
        return p;
    }

    PlanOptions options_;
    std::span<const Row> rows_;
    std::vector<StageInfo> infos_;
    std::vector<Lifetime> lifetimes_;
    std::vector<std::unique_ptr<Stage<Device>>> stages_;
    std::vector<std::size_t> saved_at_, packed_at_;
    std::size_t lowest_ = 0;
    PlanBytes bytes_;
    std::byte *arena_ = nullptr, *saved_ = nullptr, *packed_ = nullptr, *scratch_ = nullptr;
};

}  // namespace cupola::inline CUPOLA_ABI
