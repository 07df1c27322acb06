// SPDX-License-Identifier: Apache-2.0
//
// The errors in the template arguments of a training, as one compiler diagnostic; and the class that replaces a
// training with an error, so that the compiler reports only that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/pipeline/cut_choice.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/state_values.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Defined in parallel/state_transfer.hpp.
template <class D, class T>
class StateTransfer;

/// Defined in parallel/pipeline/cut_diagnostic.hpp.
template <class D>
struct CutChecks;

/// The device whose operations a device queues; also defined for types that are not devices.
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

/// Completes the error of synchronised statistics, if a normalisation is computed again in backward, when the replicas
/// no longer wait for each other.
[[nodiscard]] constexpr CompileTimeMessage synchronized_again(std::span<const LayerInfo> layers,
                                                              std::string_view statistics) {
    CompileTimeMessage message;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        if (layer.kind != LayerKind::batch_norm || layer.uses_running_statistics || layer.recompute_block == no_layer)
            continue;
        describe(message << statistics << " synchronizes the replicas in forward, and ", i + 1, layer);
        return message << " is in a block of Recompute, which runs forward again: leave it out of the block, or use "
                          "FirstReplica, LastReplica, AllReplicas or Pooled";
    }
    return message;
}

/// The first error; empty if there is none, or if the network has already reported its own.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
[[nodiscard]] consteval CompileTimeMessage training_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!Network<Net>) {
        message << short_type_name<Net>() << " is not a network: use a Sequential, or a struct that derives from one";
    } else if constexpr (!Device<D>) {
        message = device_diagnostic<D>();
    } else if constexpr (Net::valid) {
        using Kernels = KernelsOf<D>;
        message = Net::template operations_diagnostic<Kernels, typename Net::Precision>();
        if (message.empty()) message = CollectionOf<Loss>::template diagnostic_on<Kernels>(Net::layers);
        if (message.empty()) message = optimizer_diagnostic<Optimizer, Kernels>();
        if (message.empty()) message = AgreementKind<Averaging, D>::diagnostic();
        if (message.empty()) message = AgreementKind<Averaging, D>::template diagnostic_of<Optimizer, Kernels>();
        if (message.empty()) message = statistics_diagnostic<Statistics>();
        if (message.empty()) message = queue_diagnostic<D>();
        if constexpr (requires { requires bool(Statistics::synchronized); }) {
            if (message.empty()) message = synchronized_again(Net::layers, short_type_name<Statistics>());
            const auto refuse = [&](std::string_view before, std::string_view name, std::string_view after) {
                if (!message.empty() || Net::buffer_elements == 0) return;
                message << short_type_name<Statistics>() << " synchronizes the replicas inside a pass, " << before
                        << name << after << ": use FirstReplica, LastReplica, AllReplicas or Pooled";
            };
            if constexpr (requires { requires(D::max_steps_in_flight > 1); })
                refuse("which is not possible on ", D::name, ", where passes are queued");
            if constexpr (requires { requires bool(AgreementKind<Averaging, D>::asynchronous); })
                refuse("and with ", Averaging::name, " no replica waits for another");
        }
        if constexpr (may_be_cut<Net>) {
            if constexpr (!requires { sizeof(CutChecks<D>); }) {
                if (message.empty())
                    message << "a training of a network in parts needs #include <cupola/parallel/pipeline.hpp>";
            } else if (message.empty()) {
                message = CutChecks<D>::template diagnostic<Net, Averaging, Statistics>();
            }
        }
    }
    return message;
}

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
[[nodiscard]] consteval bool is_trainable() {
    if constexpr (Network<Net>) {
        return Net::valid && training_diagnostic<Net, Loss, Optimizer, Averaging, D, Statistics>().empty();
    } else {
        return false;
    }
}

/// The implementation of state() and restore() of a training, if its header is included.
template <class D, class Net>
using TransferOfState = StateTransfer<D, typename Net::Precision::Activation>;
template <class Transfer>
[[nodiscard]] consteval bool is_transfer_included() {
    constexpr bool included = requires { sizeof(Transfer); };
    static_assert(included, "state() and restore() of a training need #include <cupola/parallel/state_transfer.hpp>");
    return included;
}

/// The options of a device; empty for a type that is not a device.
template <class D>
struct DeviceOptionsOf {
    struct Type {};
};
template <Device D>
struct DeviceOptionsOf<D> {
    using Type = typename D::Options;
};

}  // namespace impl

/// Replaces a training with an error: reports it, and has the members of a training, so that the compiler reports
/// nothing else. Without an error parallel/data_parallel.hpp specialises it.
template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics = FirstReplica>
struct DataParallel {
    static_assert(static_assert_message<impl::training_diagnostic<Net, Loss, Optimizer, Averaging, D, Statistics>()>());

    using NetworkType = Net;
    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename impl::DeviceOptionsOf<D>::Type, Statistics>;
    explicit DataParallel(const Options&);
    const Options options;
    const MemoryReport& memory() const;
    const CutInfo* cut() const;
    std::int64_t step() const;
    std::int64_t steps_in_flight() const;
    ProcessNumber process() const;
    Processes* processes() const;
    RunPolicy& run_policy();
    bool healthy() const;
    static constexpr std::int64_t max_steps_in_flight = 1;
    // Defined, because an undefined function with a local type among its parameters, such as a lambda's, is an error.
    template <class Batches>
    void queue(Batches&&) {}
    template <class Batches, class Inspector>
    void queue(Batches&&, Inspector&&) {}
    const StepReport* poll_report(std::int64_t = 0);
    template <class Batches>
    const StepReport& step(Batches&&) {
        return *poll_report();
    }
    template <class Batches, class Inspector>
    const StepReport& step(Batches&&, Inspector&&) {
        return *poll_report();
    }
    template <class Batches>
    Evaluation evaluate(Batches&&, std::int64_t, auto&&...) {
        return {};
    }
    template <class Samples>
    std::vector<float> predict(Samples&&, auto&&...) {
        return {};
    }
    std::vector<float> parameters(int = 0);
    void set_parameters(std::span<const float>);
    template <class State = TrainingState>
    State state();
    template <class State>
    void restore(const State&) {}
    std::vector<float> gradient(int);
    std::vector<float> averaged_gradient();
    std::string not_captured() const;
    std::string launches_description() const;
};

}}  // namespace cupola::CUPOLA_ABI
