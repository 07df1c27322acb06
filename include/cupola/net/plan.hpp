// SPDX-License-Identifier: Apache-2.0
//
// A plan: everything that is needed to run a network on one device with one batch size, made before the first step: the
// nodes with their operations, and the place of every tensor in the arena. Running a plan allocates nothing.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/impl/plan_ends.hpp>
#include <cupola/net/plan_arguments.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `T` is the element type of activations. The batch, the output and their gradients are always float: a plan in
/// another type converts each of them once.
template <class Device, class T = float>
class Plan {
public:
    using Context = typename Device::Context;

    /// Makes the operations of `Net`. Only a function depends on the network's type, so that this class is instantiated
    /// per device, not per network.
    template <Network Net>
        requires std::same_as<typename Net::Precision::Activation, T>
    static Plan make(Context& context, const PlanOptions& options) {
        return Plan(context, options, Net::layers, Net::fusion, &Net::template node<Device, T>);
    }

    Plan(Plan&& other) noexcept;
    [[gnu::cold]] ~Plan();

    [[nodiscard]] const PlanOptions& options() const { return options_; }
    [[nodiscard]] const PlanBytes& bytes() const { return bytes_; }
    [[nodiscard]] std::span<const NodeInfo> nodes() const { return infos_.span(); }
    /// Whether the plan has a backward pass: not if it is that of a part whose layers are all below the trained ones.
    [[nodiscard]] bool has_backward() const {
        return options_.training && !options_.inspect && lowest_ < infos_.size();
    }

    /// Gives the plan its memory, of at least `bytes().total()`, at a multiple of scratch_alignment<Device>. Several
    /// plans may share it if they run one at a time and `prepare` is called after another has run.
    void bind(std::byte* arena) {
        std::byte* const packed = arena + bytes_.activations + bytes_.saved;
        bind(arena, packed, packed + bytes_.packed);
    }
    /// The same with `bytes().packed` and `bytes().scratch` elsewhere. Plans of the same options may share them if they
    /// run one at a time and each is prepared: they pack the same.
    void bind(std::byte* arena, std::byte* packed, std::byte* scratch) {
        arena_ = arena;
        ends_.bind(arena + bytes_.activations - ends_.bytes());
        saved_ = arena + bytes_.activations;
        packed_ = packed;
        scratch_ = scratch;
        bind_nodes();
    }

    /// From now on adds the time of every node to `times`; null stops this.
    [[gnu::cold]] void time(StepTimer* times);

    /// Packs weights. Must be called when the parameters, or the arena's contents, have changed. Normalisations that do
    /// not read the statistics of a batch are folded into the weights before them, with the given running statistics;
    /// throws InvalidArgument if there are none. See PassBuffers for `frozen`. `packing`: which weights.
    void prepare(Context& context, const float* parameters, const float* running = nullptr,
                 const float* frozen = nullptr, Packing packing = Packing::all);

    /// Whether a node has parameters of which none is trained.
    [[nodiscard]] bool has_frozen() const { return has_frozen_; }

    /// The number of the network's outputs.
    [[nodiscard]] std::size_t outputs() const { return outputs_.size(); }
    /// The values of output `k` of `Net::outputs` in the arena, from the end of a forward pass until backward begins.
    [[nodiscard]] const float* output(std::size_t k) {
        return ends_.output(outputs_[k], value(outputs_[k].value, nullptr));
    }

    /// Where forward() converts the column "input" of a batch to; null where it uses the column itself.
    [[nodiscard]] T* place_of_batch() const { return ends_.place_of_batch(); }

    /// Runs the network on `batch` and returns its last output, in the arena.
    const float* forward(Context& context, const PlanInputs& batch, const float* parameters, const RngKey& key,
                         const PassBuffers& buffers = {});

    /// Runs the network layer by layer, as training does (the random numbers are those of `key`), and calls
    /// visit(layer, values, elements) while each layer's output is in the arena. This gives access to outputs that
    /// fusion never writes and to those that are later overwritten. The plan must be made with `inspect`.
    template <class Visit>
    void forward_each(Context& context, const PlanInputs& batch, const float* parameters, const PassBuffers& buffers,
                      const RngKey& key, Visit&& visit) {
        require(options_.inspect, "forward_each needs a plan that was made with PlanOptions::inspect");
        check_context(context);
        check_buffers(key, buffers);
        require_columns(batch);
        const T* const samples = ends_.convert_batch(context, batch.input());
        const Call call{
            .batch = samples, .columns = batch.columns(), .parameters = parameters, .key = key, .buffers = buffers};
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            run_forward(i, i + 1, call);
            if (infos_[i].is_column) continue;
            visit(infos_[i].layer, value(i + 1, samples), options_.batch * infos_[i].output.size());
        }
    }

    /// The place where the loss writes the gradient of the last output.
    [[nodiscard]] float* output_gradient() { return output_gradient(outputs_.size() - 1); }
    /// The same for output `k`. Backward reads the gradients of all outputs.
    [[nodiscard]] float* output_gradient(std::size_t k) {
        return ends_.output_gradient(outputs_[k], output_gradient_at(outputs_[k].value));
    }
    /// Output `k` and its gradient in the plan's own type, for a loss that reads and writes them without a conversion:
    /// see PassBuffers::keeps_outputs and `own_gradients` of backward().
    [[nodiscard]] const T* own_output(std::size_t k) { return value(outputs_[k].value, nullptr); }
    [[nodiscard]] T* own_output_gradient(std::size_t k) { return output_gradient_at(outputs_[k].value); }
    /// After backward, the gradient of the batch, if the plan was made with `input_gradient`; for a part, if
    /// options().input_gradient says so.
    [[nodiscard]] const float* input_gradient() { return ends_.input_gradient(gradient_at(0)); }
    /// The same in the plan's own type.
    [[nodiscard]] const T* own_input_gradient() { return gradient_at(0); }

    /// Called once per bucket with its number: 0, 1, ...
    using BucketReady = FunctionRef<void(std::size_t bucket)>;

    /// Writes the gradient of every parameter that is trained to `gradients`, laid out as the parameters are, or adds
    /// to it. `ready` is called between two kernels of the network as soon as the queued work makes a bucket final.
    /// `own_gradients` says whether the gradients of the outputs are in own_output_gradient().
    void backward(Context& context, const PlanInputs& batch, const float* parameters, float* gradients,
                  const RngKey& key, bool accumulate = false, BucketReady ready = {}, bool own_gradients = false);

    /// The buckets of the gradient in the order in which backward finishes them. Parameters lie in the order of the
    /// layers and backward goes from the last layer to the first, so the final part begins at an offset that only
    /// decreases: the first bucket ends at the last element, each ends where the one before begins, and the last begins
    /// at element 0; for a part, at the first element that the part has, and the first bucket ends at its last.
    [[nodiscard]] std::span<const GradientBucket> buckets() const { return buckets_.span(); }

    // Synchronised statistics. Each replica has its own plan, made with `synchronized`, and its own memory, and all run
    // in lockstep: a pass has all_reduces() + 1 segments (net/segment_passes.hpp), and the replicas' sums are merged
    // between two segments.
    //
    //   for k in 0 .. all_reduces():
    //       each replica: forward_segment(k, ..., merged, partial); then merge(forward, k, partials, merged)
    //   each replica: the loss
    //   for k in 0 .. all_reduces():
    //       each replica: backward_segment(k, ...); then merge(backward, k, partials, merged)
    //
    // Nothing is merged after the last segment. All-reduce k of backward is all-reduce all_reduces() - 1 - k of
    // forward.

    [[nodiscard]] std::size_t all_reduces() const { return all_reduces_.size(); }
    /// The number of `double`s in the partial and in the merged sums of all-reduce k.
    [[nodiscard]] std::int64_t statistics_size(Direction direction, std::size_t k) const {
        return nodes_[reducing_node(direction, k)]->statistics_size();
    }
    /// Merges the replicas' sums of all-reduce k, in their order; the entry of a replica without samples is null.
    void merge(Direction direction, std::size_t k, std::span<const double* const> partials, double* merged) const {
        nodes_[reducing_node(direction, k)]->merge_sums(direction, partials, merged);
    }

    /// Segment k of forward: continues with the merged sums of all-reduce k - 1, runs up to all-reduce k and writes its
    /// sums to `partial`. Segment 0 takes no merged sums; the last writes none and returns the output, the others
    /// return null.
    const float* forward_segment(Context& context, std::size_t k, const PlanInputs& batch, const float* parameters,
                                 const RngKey& key, const PassBuffers& buffers, const double* merged, double* partial);

    /// Segment k of backward, in the same way; see `backward` for the rest. Each replica's gradient is that of the mean
    /// over its own samples, as the averaging policies expect.
    void backward_segment(Context& context, std::size_t k, const PlanInputs& batch, const float* parameters,
                          float* gradients, const RngKey& key, bool accumulate, const double* merged, double* partial);

    /// Value `v` of the nodes: 0 the batch, k + 1 the output of node k. Valid only while the memory plan keeps it.
    [[nodiscard]] const T* value(std::size_t v, const T* batch) {
        const std::size_t storage = storage_of(infos_.span(), v);
        return storage == 0 ? batch : at(lifetimes_[storage]);
    }

private:
    using NodeFunction = std::unique_ptr<PlanNode<Device, T>> (*)(const NodeInfo&, const BuildContext<Device, T>&);

    [[gnu::cold]] Plan(Context& context, const PlanOptions& options, std::span<const LayerInfo> layers, bool fusion,
                       NodeFunction make_one);

    [[nodiscard]] bool needs_gradient(std::size_t v) const {
        return cupola::needs_gradient(infos_.span(), v, lowest_, options_.input_gradient);
    }
    [[nodiscard]] bool has_backward(std::size_t i) const {
        return cupola::has_backward(infos_.span(), i, lowest_, options_.input_gradient);
    }
    [[nodiscard]] std::size_t reducing_node(Direction direction, std::size_t k) const {
        return all_reduces_[direction == Direction::forward ? k : all_reduces_.size() - 1 - k];
    }

    [[nodiscard]] T* at(const Lifetime& lifetime) { return reinterpret_cast<T*>(arena_ + lifetime.offset); }
    [[nodiscard]] T* gradient_at(std::size_t v) { return at(lifetimes_[gradient_entry(infos_.span(), v)]); }
    [[nodiscard]] T* output_gradient_at(std::size_t v) {
        return at(lifetimes_[output_gradient_entry(infos_.span(), v)]);
    }

    /// Converts the outputs after forward, and their gradients before backward. Returns the last output.
    const float* convert_outputs(Context& context, const T* samples);
    void convert_output_gradients(Context& context);

    /// Throws InvalidArgument if the batch lacks a column that the network reads.
    void require_columns(const PlanInputs& batch) const;
    [[gnu::cold]] void check_buffers(const RngKey& key, const PassBuffers& buffers) const;
    /// Whether a pass is in training mode, with or without backward.
    [[nodiscard]] bool trains(const RngKey& key) const {
        return key.training && (options_.training || options_.inspect);
    }

    /// The arguments that change from call to call; an operation's other arguments are bound.
    struct Call {
        const T* batch = nullptr;
        const BatchView* columns = nullptr;
        const float* parameters = nullptr;
        float* gradients = nullptr;
        RngKey key{};
        PassBuffers buffers{};
        bool accumulate = false;
    };

    /// Launches what operations have deferred, on a device that defers work.
    void launch_deferred() {
        if constexpr (requires { context_->launch_deferred(); }) context_->launch_deferred();
    }

    void run_forward(std::size_t begin, std::size_t end, const Call& call);

    /// Runs backward from node `end` - 1 down to node `begin`, with the forward passes that belong to it.
    void run_backward(std::size_t end, std::size_t begin, const Call& call, BucketReady ready = {});

    [[gnu::cold]] void find_buckets();

    /// Whether backward runs node `i` forward again.
    [[nodiscard]] bool recomputed(std::size_t i) const {
        return entry_in_backward(lifetimes_.span(), infos_.size(), i + 1) != i + 1;
    }

    /// Finds the nodes that mask and sum the gradient of their input for the node before, which then does not have to.
    [[gnu::cold]] void find_gradient_sums();
    /// Binds each node's tensors to places in the arena.
    [[gnu::cold]] void bind_nodes();
    [[gnu::cold]] void bind_gradients(std::size_t i, BackwardArgs<Device, T>& args);

    /// Value `v` as backward, and forward again, read it.
    [[nodiscard]] T* value_in_backward(std::size_t v) {
        const std::size_t storage = storage_of(infos_.span(), v);
        return storage == 0 ? nullptr : at(lifetimes_[entry_in_backward(lifetimes_.span(), infos_.size(), storage)]);
    }
    /// Whether backward of node `i` has other places than forward: it belongs to a block that is computed again.
    [[nodiscard]] bool bound_twice(std::size_t i) const {
        return bound_.size() > infos_.size() && infos_[i].recompute_block != no_layer;
    }

    /// The bound arguments of node `i` combined with those of a call. `in_backward`: for backward, or forward again.
    const BackwardArgs<Device, T>& args_of(std::size_t i, const Call& call, bool in_backward = false);

    /// A plan runs on the context for which its operations were made, in the memory that it was given.
    void check_context(const Context& context) const {
        require(&context == context_, "a plan must run on the context that it was made with");
        require(!bound_.empty(), "a plan cannot run before bind() gives it memory");
    }

    Context* context_;
    PlanOptions options_;
    /// All layers of the network, and those that the plan runs.
    std::span<const LayerInfo> layers_, own_layers_;
    FixedArray<NodeInfo> infos_;
    FixedArray<Lifetime> lifetimes_;
    FixedArray<std::unique_ptr<PlanNode<Device, T>>> nodes_;
    /// Those of each node; where nodes are computed again, followed by those of each node in backward.
    std::vector<BackwardArgs<Device, T>> bound_;
    FixedArray<NodePass> passes_;
    /// The running statistics that the last forward pass was given.
    const float* running_ = nullptr;
    FixedArray<std::size_t> saved_at_, packed_at_;
    /// Per node, the offset in the saved memory of the sums that it writes of its input's gradient, or no_sums.
    static constexpr std::size_t no_sums = static_cast<std::size_t>(-1);
    FixedArray<std::size_t> sums_at_;
    /// Per node, the offset in the scratch memory where the gradients of its frozen parameters are discarded, if it
    /// computes them.
    FixedArray<std::size_t> discarded_at_;
    /// The nodes whose statistics are summed over the replicas by all-reduce.
    FixedArray<std::size_t> all_reduces_;
    FixedArray<GradientBucket> buckets_;
    /// The node whose backward makes each bucket final.
    FixedArray<std::size_t> bucket_nodes_;
    std::size_t lowest_ = 0;
    /// Whether the network reads columns other than an "input" of floats.
    bool reads_columns_ = false, has_frozen_ = false;
    PlanBytes bytes_;
    impl::PlanEnds<Device, T> ends_;
    FixedArray<impl::PlanOutput> outputs_;
    StepTimer* times_ = nullptr;
    std::byte *arena_ = nullptr, *saved_ = nullptr, *packed_ = nullptr, *scratch_ = nullptr;
};

/// The plan of a network on a device, in the network's precision.
template <Network Net, class Device>
using PlanOf = Plan<Device, typename Net::Precision::Activation>;

}}  // namespace cupola::CUPOLA_ABI

#include <cupola/net/impl/plan_making.hpp>
#include <cupola/net/impl/plan_passes.hpp>
