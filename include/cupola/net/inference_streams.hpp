// SPDX-License-Identifier: Apache-2.0
//
// Runs a network outside training from several threads at once: a fixed number of streams, each with its own context,
// plans and memory, share one copy of the parameters. A caller takes a free stream, or waits for one.
//
// A stream has plans for the largest batch, for a quarter of it, and so on down to one sample. A batch is run in parts
// of these sizes, the largest first: 100 samples of at most 128 are 32 + 32 + 32 + 2 + 2. No part is padded with unused
// samples. Everything is allocated before the first sample. All streams are on the first device of the options, whose
// memory has the parameters. The class is instantiated per device, not per network.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class D, class T = float>
class InferenceStreams {
public:
    struct Options {
        std::int64_t max_batch = 1;
        int streams = 1;
        typename D::Options device;
        /// See PlanOptions.
        decltype(PlanOptions::join) join = nullptr;
    };

    /// Throws InvalidArgument for invalid options, DeviceError, or OutOfMemory before it allocates more memory than is
    /// available.
    template <Network Net>
    [[gnu::cold]] static InferenceStreams make(const Options& options, std::span<const float> parameters,
                                               std::span<const float> buffers) {
        return InferenceStreams(options, required_inputs(Net::layers), Net::outputs, &Plan<D, T>::template make<Net>,
                                parameters, buffers);
    }

    /// The columns of the network's inputs.
    [[nodiscard]] std::span<const RequiredColumn> inputs() const { return {inputs_.data(), inputs_.size()}; }

    /// Runs the network on a batch in host memory, of at most `max_batch` samples, which has the columns of `inputs()`.
    /// `outputs` has the place of each output in host memory, in the order of `Net::outputs`, or null for one that is
    /// not read. Any number of threads may call it concurrently.
    void run(const BatchView& samples, std::span<float* const> outputs) const {
        const Taken taken(*shared_);
        Stream& stream = *taken.stream;
        std::int64_t done = 0;
        for (auto sized = stream.plans.begin(); sized != stream.plans.end(); ++sized) {
            for (; samples.size - done >= sized->batch; done += sized->batch)
                forward(stream, *sized, samples, done, outputs);
        }
    }

    [[nodiscard]] int streams() const { return static_cast<int>(shared_->streams.size()); }
    /// Bytes of device memory of all streams, including the parameters.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    using Make = Plan<D, T> (*)(typename D::Context&, const PlanOptions&);

    struct SizedPlan {
        Plan<D, T> plan;
        std::int64_t batch;
        typename D::Arena arena;
    };
    struct Stream {
        std::unique_ptr<typename D::Context> context;
        std::vector<SizedPlan> plans;
        typename D::Arena samples;
    };
    struct Shared {
        std::vector<Stream> streams;
        typename D::Arena parameters, buffers;
        std::mutex mutex;
        std::condition_variable freed;
        std::vector<Stream*> free;
    };

    /// Holds a stream during its lifetime.
    struct Taken {
        explicit Taken(Shared& from) : shared(from) {
            std::unique_lock lock(shared.mutex);
            shared.freed.wait(lock, [&] { return !shared.free.empty(); });
            stream = shared.free.back();
            shared.free.pop_back();
        }
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;
        ~Taken() {
            {
                const std::lock_guard lock(shared.mutex);
                shared.free.push_back(stream);
            }
            shared.freed.notify_one();
        }
        Shared& shared;
        Stream* stream = nullptr;
    };

    [[gnu::cold]] InferenceStreams(const Options& options, FixedArray<RequiredColumn> inputs,
                                   std::span<const NetworkOutput> outputs, Make make_plan,
                                   std::span<const float> parameters, std::span<const float> buffers)
        : shared_(std::make_unique<Shared>()), inputs_(std::move(inputs)), outputs_(outputs) {
        constexpr std::int64_t max_samples = 1'000'000;
        constexpr int max_streams = 4096;
        require(options.max_batch >= 1 && options.max_batch <= max_samples, "the largest batch must have 1 to ",
                max_samples, " samples, not ", options.max_batch);
        require(options.streams >= 1 && options.streams <= max_streams, "there must be 1 to ", max_streams,
                " streams, not ", options.streams);
        bytes_ = parameters.size_bytes() + buffers.size_bytes();
        std::size_t sample_bytes = 0;
        for (const RequiredColumn& each : inputs_)
            sample_bytes =
                aligned(sample_bytes) +
                checked_bytes(text("the column ", each.column.name, " of ", options.max_batch, " samples needs"),
                              {options.max_batch, static_cast<std::int64_t>(each.column.bytes())});
        const typename D::Options device = on_one_device(options);
        for (int i = 0; i < options.streams; ++i) {
            Stream stream{.context = std::make_unique<typename D::Context>(i, device), .plans = {}, .samples = {}};
            const auto team = stream.context->team();
            for (std::int64_t batch = options.max_batch;; batch /= 4) {
                stream.plans.push_back(
                    {make_plan(*stream.context, {.batch = batch, .training = false, .join = options.join}), batch, {}});
                bytes_ += stream.plans.back().plan.bytes().total();
                if (batch == 1) break;
                if (batch < 4) batch = 4;
            }
            bytes_ += sample_bytes;
            shared_->streams.push_back(std::move(stream));
        }
        const std::size_t available = [&] {
            const auto team = shared_->streams.front().context->team();
            return D::available_memory();
        }();
        require<OutOfMemory>(bytes_ <= available, options.streams, options.streams == 1 ? " stream" : " streams",
                             " of at most ", options.max_batch, options.max_batch == 1 ? " sample" : " samples",
                             " need ", ByteCount{bytes_}, ", and ", ByteCount{available}, " are available");
        allocate(sample_bytes, parameters, buffers);
    }

    /// The options with which the contexts of all streams are on one device.
    [[nodiscard]] static typename D::Options on_one_device(const Options& options) {
        typename D::Options device = options.device;
        if constexpr (requires { device.devices_per_gpu; }) {
            if (device.devices_per_gpu > 0) device.devices_per_gpu = options.streams;
        }
        return device;
    }

    [[gnu::cold]] void allocate(std::size_t sample_bytes, std::span<const float> parameters,
                                std::span<const float> buffers) {
        Shared& s = *shared_;
        copy_shared(parameters, buffers);
        s.free.reserve(s.streams.size());
        for (Stream& stream : s.streams) {
            const auto team = stream.context->team();
            stream.samples = typename D::Arena(sample_bytes, text("the samples of stream ", stream.context->ordinal()));
            for (SizedPlan& sized : stream.plans) {
                sized.arena = typename D::Arena(sized.plan.bytes().total(),
                                                text("the activations of stream ", stream.context->ordinal()));
                sized.plan.bind(sized.arena.data());
                sized.plan.prepare(*stream.context, reinterpret_cast<const float*>(s.parameters.data()),
                                   reinterpret_cast<const float*>(s.buffers.data()));
            }
            s.free.push_back(&stream);
        }
    }

    /// Allocates and fills what the streams share.
    [[gnu::cold]] void copy_shared(std::span<const float> parameters, std::span<const float> buffers) {
        Shared& s = *shared_;
        typename D::Context& first = *s.streams.front().context;
        const auto team = first.team();
        s.parameters = typename D::Arena(parameters.size_bytes(), "the parameters");
        s.buffers = typename D::Arena(buffers.size_bytes(), "the running statistics");
        D::copy_from_host(first, s.parameters.data(), reinterpret_cast<const std::byte*>(parameters.data()),
                          parameters.size_bytes());
        D::copy_from_host(first, s.buffers.data(), reinterpret_cast<const std::byte*>(buffers.data()),
                          buffers.size_bytes());
    }

    /// Samples [first, first + the plan's batch) of a call.
    void forward(Stream& stream, SizedPlan& sized, const BatchView& samples, std::int64_t first,
                 std::span<float* const> outputs) const {
        typename D::Context& context = *stream.context;
        const auto team = context.team();
        std::byte* to = stream.samples.data();
        BatchView batch(sized.batch, {});
        for (const RequiredColumn& each : inputs_) {
            const std::size_t bytes = static_cast<std::size_t>(sized.batch) * each.column.bytes();
            const auto* const from = static_cast<const std::byte*>(samples.data_of(each.column.name, each.column.type));
            D::copy_from_host(context, to, from + static_cast<std::size_t>(first) * each.column.bytes(), bytes);
            batch.push_back({each.column, to});
            to += aligned(bytes);
        }
        static_cast<void>(sized.plan.forward(context, batch, reinterpret_cast<const float*>(shared_->parameters.data()),
                                             {.training = false},
                                             {.running = reinterpret_cast<const float*>(shared_->buffers.data())}));
        for (std::size_t k = 0; k < outputs.size(); ++k) {
            if (outputs[k] == nullptr) continue;
            const std::int64_t size = outputs_[k].shape.size();
            D::copy_to_host(context, reinterpret_cast<std::byte*>(outputs[k] + first * size),
                            reinterpret_cast<const std::byte*>(sized.plan.output(k)),
                            static_cast<std::size_t>(sized.batch * size) * sizeof(float));
        }
    }

    std::unique_ptr<Shared> shared_;
    FixedArray<RequiredColumn> inputs_;
    /// The outputs of the network.
    std::span<const NetworkOutput> outputs_;
    std::size_t bytes_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
