// SPDX-License-Identifier: Apache-2.0
//
// An operation of one device inside a network on another: its tensors are copied there and back. Input and output stay
// on the other device from forward to backward, so that backward copies only gradients. Between two devices that both
// have their own memory, the copies go through the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <cupola/ops/operation.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A device whose memory is the host's memory declares it.
template <class D>
concept InHostMemory = requires { requires D::host_memory; };

namespace ops {

/// The operation `Op` of the device `Other`. `make` makes its node; `parameters` are the sizes of the layer's
/// parameters, or 0.
template <class Device, class Other, class Op>
class Offloaded {
public:
    using ParameterSizes = std::array<std::int64_t, max_parameters>;

    Offloaded(const BuildContext<Device>& build, std::unique_ptr<PlanNode<Other>> (*make)(const BuildContext<Other>&),
              const ParameterSizes& parameters)
        : context_(build.context.ordinal(), typename Other::Options{}), parameter_sizes_(parameters) {
        // The node and its memory are made on the other device.
        const auto team = context_.team();
        node_ = make(BuildContext<Other>{.context = context_,
                                         .batch = build.batch,
                                         .input = build.input,
                                         .output = build.output,
                                         .layer = build.layer,
                                         .training = build.training,
                                         .input_gradient = build.input_gradient});
        const MemoryNeeds needs = node_->needs();
        const auto floats = [&](std::int64_t count) { return take(static_cast<std::size_t>(count) * sizeof(float)); };
        input_ = floats(build.batch * build.input.size());
        output_ = floats(build.batch * build.output.size());
        output_gradient_ = floats(build.training ? build.batch * build.output.size() : 0);
        input_gradient_ = floats(build.training && build.input_gradient ? build.batch * build.input.size() : 0);
        for (std::size_t p = 0; p < max_parameters; ++p) {
            parameters_[p] = floats(parameters[p]);
            parameter_gradients_[p] = floats(build.training ? parameters[p] : 0);
        }
        packed_ = take(needs.packed);
        saved_ = take(needs.saved);
        scratch_ = take(needs.scratch);
        memory_ = typename Other::Arena(total_, "the tensors of an operation on another device");
        if constexpr (!InHostMemory<Device> && !InHostMemory<Other>) staging_.resize(largest_);
    }

    void prepare(const ForwardArgs<Device>& args) {
        const auto team = context_.team();
        for (std::size_t p = 0; p < max_parameters; ++p) send(args, args.parameters[p], parameters_[p]);
        node_->prepare(forward_call(args));
    }
    void forward(const ForwardArgs<Device>& args) {
        const auto team = context_.team();
        send(args, args.input, input_);
        node_->forward(forward_call(args));
        fetch(args, output_, args.output);
    }
    void backward(const BackwardArgs<Device>& args)
        requires HasBackward<Op, Other>
    {
        const auto team = context_.team();
        send(args, args.output_gradient, output_gradient_);
        if (args.accumulate) {
            for (std::size_t p = 0; p < max_parameters; ++p)
                send(args, args.parameter_gradients[p], parameter_gradients_[p]);
        }
        node_->backward(backward_call(args));
        if (args.input_gradient != nullptr) fetch(args, input_gradient_, args.input_gradient);
        for (std::size_t p = 0; p < max_parameters; ++p)
            fetch(args, parameter_gradients_[p], args.parameter_gradients[p]);
    }

private:
    struct Part {
        std::size_t offset = 0, bytes = 0;
    };

    Part take(std::size_t bytes) {
        const Part part{total_, bytes};
        total_ += aligned(bytes);
        if (bytes > largest_) largest_ = bytes;
        return part;
    }
    [[nodiscard]] std::byte* at(const Part& part) { return memory_.data() + part.offset; }
    [[nodiscard]] float* floats_at(const Part& part) { return reinterpret_cast<float*>(at(part)); }

    ForwardArgs<Other> forward_call(const ForwardArgs<Device>& args) {
        ForwardArgs<Other> there{.context = context_};
        there.input = floats_at(input_);
        there.output = floats_at(output_);
        for (std::size_t p = 0; p < max_parameters; ++p) {
            if (parameter_sizes_[p] != 0) there.parameters[p] = floats_at(parameters_[p]);
        }
        there.packed = at(packed_);
        there.saved = at(saved_);
        there.scratch = at(scratch_);
        there.training = args.training;
        there.seed = args.seed;
        there.step = args.step;
        there.first_sample = args.first_sample;
        return there;
    }
    BackwardArgs<Other> backward_call(const BackwardArgs<Device>& args) {
        BackwardArgs<Other> there{forward_call(args)};
        there.output_gradient = floats_at(output_gradient_);
        there.input_gradient = args.input_gradient != nullptr ? floats_at(input_gradient_) : nullptr;
        for (std::size_t p = 0; p < max_parameters; ++p) {
            if (parameter_sizes_[p] != 0) there.parameter_gradients[p] = floats_at(parameter_gradients_[p]);
        }
        there.accumulate = args.accumulate;
        return there;
    }

    void send(const ForwardArgs<Device>& args, const float* from, const Part& to) {
        if (from == nullptr || to.bytes == 0) return;
        const auto* const bytes = reinterpret_cast<const std::byte*>(from);
        if constexpr (InHostMemory<Other>) {
            Device::copy_to_host(args.context, at(to), bytes, to.bytes);
        } else if constexpr (InHostMemory<Device>) {
            Other::copy_from_host(context_, at(to), bytes, to.bytes);
        } else {
            Device::copy_to_host(args.context, staging_.data(), bytes, to.bytes);
            Other::copy_from_host(context_, at(to), staging_.data(), to.bytes);
        }
    }
    void fetch(const ForwardArgs<Device>& args, const Part& from, float* to) {
        if (to == nullptr || from.bytes == 0) return;
        auto* const bytes = reinterpret_cast<std::byte*>(to);
        if constexpr (InHostMemory<Other>) {
            Device::copy_from_host(args.context, bytes, at(from), from.bytes);
        } else if constexpr (InHostMemory<Device>) {
            Other::copy_to_host(context_, bytes, at(from), from.bytes);
        } else {
            Other::copy_to_host(context_, staging_.data(), at(from), from.bytes);
            Device::copy_from_host(args.context, bytes, staging_.data(), from.bytes);
        }
    }

    typename Other::Context context_;
    std::unique_ptr<PlanNode<Other>> node_;
    ParameterSizes parameter_sizes_;
    Part input_, output_, output_gradient_, input_gradient_, packed_, saved_, scratch_;
    std::array<Part, max_parameters> parameters_{}, parameter_gradients_{};
    std::size_t total_ = 0, largest_ = 0;
    typename Other::Arena memory_;
    std::vector<std::byte> staging_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
