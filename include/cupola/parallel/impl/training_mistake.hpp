// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with the parts of a training, as one sentence; and the class that stands for a training with a mistake,
// so that the compiler says the sentence and nothing more.
#pragma once

#include <cstdint>
#include <vector>

#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The device whose operations a device queues, for what is no device too.
template <class D>
struct KernelsOfDevice {
    using Type = D;
};
template <class D>
    requires requires { typename D::Kernels; }
struct KernelsOfDevice<D> {
    using Type = typename D::Kernels;
};
template <class D>
using KernelsOf = typename KernelsOfDevice<D>::Type;

/// The first mistake; nothing where there is none, and nothing where the network has reported its own.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
[[nodiscard]] consteval Sentence training_mistake() {
    Sentence sentence;
    if constexpr (!Network<Net>) {
        sentence << short_type_name<Net>() << " is no network: name a Sequential, or a struct that derives from one";
    } else if constexpr (!Device<D>) {
        sentence = device_mistake<D>();
    } else if constexpr (Net::sound) {
        using Kernels = KernelsOf<D>;
        sentence = Net::template untrainable<Kernels, typename Net::Precision>();
        if (sentence.empty()) sentence = CollectionOf<Loss>::template mistake_on<Kernels>(Net::rows, Net::output_shape);
        if (sentence.empty()) sentence = optimizer_mistake<Optimizer, Kernels>();
        if (sentence.empty()) sentence = agreement_mistake<Averaging, D>();
        if (sentence.empty()) sentence = statistics_mistake<Statistics>();
        if (sentence.empty()) sentence = queue_mistake<D>();
        if constexpr (requires { requires(D::max_steps_in_flight > 1) && Statistics::synchronized; }) {
            if (sentence.empty() && Net::buffer_elements > 0) {
                sentence << short_type_name<Statistics>() << " stops the replicas inside a pass, which cannot be on "
                         << D::name
                         << ", where passes are queued: name FirstReplica, LastReplica, AllReplicas or Merged";
            }
        }
    }
    return sentence;
}

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
[[nodiscard]] consteval bool is_trainable() {
    if constexpr (Network<Net>) {
        return Net::sound && training_mistake<Net, Loss, Optimizer, Averaging, D, Statistics>().empty();
    } else {
        return false;
    }
}

/// The options of a device, for what is none too.
template <class D>
struct DeviceOptionsOf {
    struct Type {};
};
template <Device D>
struct DeviceOptionsOf<D> {
    using Type = typename D::Options;
};

}  // namespace impl

/// A training with a mistake: says it, and can be used like a training as far as the compiler is concerned. Without a
/// mistake parallel/data_parallel.hpp takes its place.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics = FirstReplica>
struct DataParallel {
    static_assert(report_mistake<impl::training_mistake<Net, Loss, Optimizer, Averaging, D, Statistics>()>());

    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename impl::DeviceOptionsOf<D>::Type, Statistics>;
    explicit DataParallel(const Options&);
    const Options options;
    const MemoryReport& memory() const;
    std::int64_t step() const;
    static constexpr std::int64_t max_steps_in_flight = 1;
    template <class Batches>
    void queue(Batches&&);
    template <class Batches, class Inspector>
    void queue(Batches&&, Inspector&&);
    const StepReport* poll_report(std::int64_t = 0);
    template <class Batches>
    const StepReport& step(Batches&&);
    template <class Batches>
    Evaluation evaluate(Batches&&, std::int64_t);
    std::vector<float> parameters(int = 0);
};

}  // namespace cupola::inline CUPOLA_ABI
