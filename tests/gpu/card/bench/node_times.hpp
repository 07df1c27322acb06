// SPDX-License-Identifier: Apache-2.0
//
// The time of the parts of a step on a GPU, measured by events in its stream. The step is queued without capture while a
// kernel holds the stream, so that the GPU never waits for the host. The time of each part includes its events.
#pragma once

#include <deque>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/train/impl/profile_parts.hpp>

#include "../../../standard.hpp"

namespace bench {

using namespace cupola;

/// Holds the stream for this time, so that the work queued meanwhile runs without gaps.
static __global__ void __launch_bounds__(1) hold_kernel(std::uint64_t nanoseconds) {
    impl::begin_kernel();
#ifdef __CUDACC__  // no other compiler's kernels have a clock
    std::uint64_t begun = 0, now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begun < nanoseconds);
#else
    static_cast<void>(nanoseconds);
#endif
}

/// Records an event at the start and at the end of each part.
class EventMarks final : public StepMarks {
public:
    explicit EventMarks(const CudaContext& context) : context_(context) {}

    void begin(std::size_t entry) override { parts_.push_back({entry, record(), 0}); }
    void end(std::size_t entry) override {
        for (std::size_t i = parts_.size(); i-- > 0;) {
            if (parts_[i].entry != entry) continue;
            parts_[i].end = record();
            return;
        }
    }
    std::size_t record() {
        if (used_ == events_.size()) impl::check_cuda(cudaEventCreate(events_.emplace_back().out()), "cudaEventCreate");
        impl::check_cuda(cudaEventRecord(events_[used_].get(), context_.stream()), "cudaEventRecord");
        return used_++;
    }

    /// The time between two completed events.
    [[nodiscard]] double seconds(std::size_t from, std::size_t to) const {
        float milliseconds = 0;
        impl::check_cuda(cudaEventElapsedTime(&milliseconds, events_[from].get(), events_[to].get()),
                         "cudaEventElapsedTime");
        return static_cast<double>(milliseconds) / 1000;
    }
    /// Adds the times of the parts to `times` and clears them. Called when all work is complete.
    void give(StepTimes& times) {
        for (const Part& part : parts_) times.add(part.entry, seconds(part.begin, part.end));
        parts_.clear();
        used_ = 0;
    }

private:
    struct Part {
        std::size_t entry, begin, end;
    };
    const CudaContext& context_;
    std::deque<impl::CudaEvent> events_;
    std::vector<Part> parts_;
    std::size_t used_ = 0;
};

/// Times steps of `Net` without capture: batch, packing, forward, loss, backward, the check of the gradient, the update.
template <class Net, class Loss>
StepProfile node_times(const CudaOptions& options, std::int64_t batch, const BatchView& synthetic, int steps = 30) {
    using Element = typename Net::Precision::Activation;
    constexpr std::uint64_t held_nanoseconds = 4'000'000;
    constexpr int warm_up = 5;
    constexpr auto elements = static_cast<std::size_t>(Net::parameter_elements);
    CudaContext context(0, options);
    const auto team = context.team();
    const PeakRates rates{.operations = 1, .bytes = 1};  // the report computes its own
    Plan<Cuda, Element> plan = Plan<Cuda, Element>::template make<Net>(context, {.batch = batch});
    CudaArena arena(plan.bytes().total(), "the activations"), parameters(elements * sizeof(float), "the parameters"),
        gradients(elements * sizeof(float), "the gradients"), scalars(256, "the step's numbers"),
        taken(static_cast<std::size_t>(batch * Net::input_shape.size()) * sizeof(float), "a batch"),
        labels(static_cast<std::size_t>(batch) * sizeof(std::int32_t), "its labels");
    plan.bind(arena.data());
    const std::vector<float> initial = impl::initial_parameters(Net::layers, 1, {});
    Cuda::copy_from_host(context, parameters.data(), reinterpret_cast<const std::byte*>(initial.data()),
                         initial.size() * sizeof(float));
    auto* const weights = reinterpret_cast<float*>(parameters.data());
    auto* const gradient = reinterpret_cast<float*>(gradients.data());
    auto* const samples = reinterpret_cast<float*>(taken.data());
    auto* const its_labels = reinterpret_cast<std::int32_t*>(labels.data());
    BatchSpan place(synthetic.columns());
    place.set_data(0, taken.data());
    place.set_data(1, labels.data());
    auto* const healthy = reinterpret_cast<std::int32_t*>(scalars.data());
    auto* const count = reinterpret_cast<float*>(scalars.data() + 64);
    auto* const report = reinterpret_cast<LossReport*>(scalars.data() + 128);
    impl::queue_set(context, healthy, std::int32_t{1});
    impl::queue_set(context, count, 1.0F);
    const auto regularized = CollectionOf<Loss>::regularized(Net::layers);
    const auto segments = impl::segments_of(Net::layers, regularized);
    std::int64_t regularized_elements = 0;
    for (const auto& parameter : regularized) regularized_elements += parameter.size;
    const Sgd optimizer{.learning_rate = 0.01};
    const auto loss = impl::loss_operation<Cuda>(CollectionOf<Loss>{}.data, Net::output_shape);

    StepTimes times(Net::layers.size(), steps);
    EventMarks marks(context);
    times.mark(&marks);
    for (int i = 0; i < warm_up + steps; ++i) {
        StepTimes* const timed = i < warm_up ? nullptr : &times;
        plan.time(timed);
        impl::launch_kernel(hold_kernel, 1, 1, context, held_nanoseconds);
        const std::size_t begun = timed != nullptr ? marks.record() : 0;
        const RngKey key{.seed = 1, .step = static_cast<std::uint32_t>(i)};
        {
            const Stopwatch watch(timed, StepPart::data);
            impl::queue_take_batch(context, synthetic, place, healthy);
        }
        plan.prepare(context, weights);
        const float* const logits = plan.forward(context, samples, weights, key);
        {
            const Stopwatch watch(timed, StepPart::loss);
            loss.queue(context, logits, its_labels, batch, plan.output_gradient(), report);
        }
        plan.backward(context, samples, weights, gradient, key);
        {
            const Stopwatch watch(timed, StepPart::averaging);
            impl::queue_mean(context, {gradient, elements}, count, {gradient, elements}, healthy);
        }
        {
            const Stopwatch watch(timed, StepPart::optimizer);
            update_parameters(optimizer, Update<Cuda>{.context = context,
                                                      .parameters = weights,
                                                      .gradient = gradient,
                                                      .elements = Net::parameter_elements,
                                                      .segments = segments,
                                                      .step = i});
        }
        const std::size_t ended = timed != nullptr ? marks.record() : 0;
        context.synchronize();
        if (timed == nullptr) continue;
        const double whole = marks.seconds(begun, ended);
        marks.give(times);
        times.end_step(whole);
    }
    return impl::ProfileParts(times, {.layers = Net::layers,
                                      .fusion = Net::fusion,
                                      .element_bytes = sizeof(Element),
                                      .samples_per_step = static_cast<double>(batch),
                                      .parameter_elements = Net::parameter_count,
                                      .regularized_elements = regularized_elements})
        .find(rates);
}

inline void print(const StepProfile& profile) {
    std::printf("{\"seconds\": %.9f, \"rest\": %.9f, \"steps\": %lld, \"parts\": [", profile.seconds, profile.rest,
                static_cast<long long>(profile.steps));
    const char* before = "";
    for (const ProfiledPart& part : profile.parts) {
        std::printf(
            "%s{\"name\": \"%s\", \"what\": \"%s\", \"pass\": \"%s\", \"seconds\": %.9f, \"operations\": %.0f, \"bytes\": "
            "%.0f}",
            before, part.name.c_str(), part.what.c_str(), std::string(part.pass).c_str(), part.seconds, part.operations,
            part.bytes);
        before = ", ";
    }
    std::printf("]}\n");
}

}  // namespace bench
