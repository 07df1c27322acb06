// SPDX-License-Identifier: Apache-2.0
//
// The averaging policies that the command line can name, as one type for each that moves values between the replicas:
// a training is instantiated once for it, and not once per policy. And the order log of asynchronous ones.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <cupola/cupola.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#ifndef __CUDACC__
#include <cupola/io/order_log.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#ifdef CUPOLA_EXAMPLE_MPI
#include <cupola/mpi.hpp>
#include <cupola/processes/shared_centre.hpp>
#endif
#endif

#include "options.hpp"

namespace cifar10 {

/// The rules by which replicas agree on a centre around `Carrier`.
template <class Carrier>
using NamedRule = OneOf<Periodic<Carrier>, Periodic<Carrier, Sgd>, ElasticAveraging<Carrier>>;
template <class Carrier>
using NamedAveraging = OneOf<Carrier, Periodic<Carrier>, Periodic<Carrier, Sgd>, ElasticAveraging<Carrier>>;

/// The rule of --averaging, around `carrier`, for replicas with parameters of their own. Not for asynchronous ones.
template <class Named, class Carrier>
Named rule_around(const TrainOptions& options, const Carrier& carrier) {
    const std::string& name = options.averaging;
    if (name == "local-sgd")
        return Periodic<Carrier>{.every = options.period,
                                 .from_step = options.from_step,
                                 .fragments = options.fragments,
                                 .delay = options.delay,
                                 .averaging = carrier};
    if (name == "diloco") {
        const double momentum = options.outer_momentum;
        return Periodic<Carrier, Sgd>{
            .every = options.period,
            .from_step = options.from_step,
            .fragments = options.fragments,
            .delay = options.delay,
            .averaging = carrier,
            .outer = {.learning_rate = options.outer_rate, .momentum = momentum, .nesterov = momentum != 0}};
    }
    ElasticAveraging<Carrier> elastic{.every = options.period, .averaging = carrier};
    if (options.moving_rate) elastic.rate = *options.moving_rate;
    return elastic;
}

/// The same; `carrier` itself unless replicas have parameters of their own.
template <class Named, class Carrier>
Named averaging_around(const TrainOptions& options, const Carrier& carrier) {
    if (!options.own_parameters()) return carrier;
    return rule_around<Named>(options, carrier);
}

#ifndef __CUDACC__

#ifdef CUPOLA_EXAMPLE_MPI
inline MpiConcatMean mpi_concat_mean(const TrainOptions& options) {
    return {.deadline_seconds = options.deadline, .folder = options.run.folder, .environment = options.mpi};
}
#endif

/// The order log of --order-log; null if none is written.
inline std::shared_ptr<OrderLog> order_log_of(const TrainOptions& options) {
    if (options.order_log.empty() || options.order == "replay") return nullptr;
    auto log = std::make_shared<OrderLog>();
    // A run that continues also continues its log.
    std::error_code error;
    if (options.run.resume != Resume::no && std::filesystem::exists(options.order_log, error))
        *log = read_order_log(options.order_log);
    return log;
}

/// Writes the order log, if there is one, with each checkpoint and at the end of the run. Of several processes, each
/// has all of it, and one writes it.
template <class Training>
struct OrderLogFile {
    std::shared_ptr<OrderLog> log;
    std::string path;
    bool writes;
    std::int64_t every;
    Training* training;

    /// The file is written after hours, so a folder that it cannot be in is found before.
    void on_begin(Run&) const {
        const std::filesystem::path folder = std::filesystem::path(path).parent_path();
        std::error_code error;
        require<DataError>(log == nullptr || !writes || folder.empty() || std::filesystem::is_directory(folder, error),
                           "--order-log ", path, " cannot be written: there is no folder ", folder.string());
    }
    [[nodiscard]] bool synchronize_after(std::int64_t step) const {
        return log != nullptr && every > 0 && (step + 1) % every == 0;
    }
    void on_step(const StepReport& report, Run&) {
        if (synchronize_after(report.step)) write();
    }
    void on_end(Run&) {
        if (log != nullptr && training->healthy()) write();
    }
    void write() {
        static_cast<void>(training->parameters());  // waits until the log has the last step
        if (writes && log->replicas > 0) write_order_log(path, *log);
    }
};

/// The policies of all lists as one.
template <class...>
struct JoinedPolicies;
template <class... Policies>
struct JoinedPolicies<OneOf<Policies...>> {
    using Type = OneOf<Policies...>;
};
template <class... Policies, class... Others, class... Lists>
struct JoinedPolicies<OneOf<Policies...>, OneOf<Others...>, Lists...>
    : JoinedPolicies<OneOf<Policies..., Others...>, Lists...> {};

/// Those of one process and, with MPI, of several: all that --averaging, --inner and --gradient-compression name. The
/// asynchronous ones are for networks in float.
using AsynchronousPolicies = OneOf<Asynchronous<Elastic>, Asynchronous<Downpour>, Hogwild, Backup>;
#ifdef CUPOLA_EXAMPLE_MPI
template <class Carrier>
using SharedPolicies = OneOf<SharedCentre<Asynchronous<Elastic>, Carrier>,
                             SharedCentre<Asynchronous<Downpour>, Carrier>, SharedCentre<Hogwild, Carrier>>;
using SynchronousAveraging =
    JoinedPolicies<NamedAveraging<ConcatMean>, NamedAveraging<MpiConcatMean>, NamedAveraging<Compressed<MpiConcatMean>>,
                   NamedAveraging<MpiAllReduce>, NamedAveraging<Compressed<MpiAllReduce>>>::Type;
using HostAveraging = JoinedPolicies<SynchronousAveraging, AsynchronousPolicies, SharedPolicies<MpiConcatMean>>::Type;
#else
using SynchronousAveraging = NamedAveraging<ConcatMean>;
using HostAveraging = JoinedPolicies<SynchronousAveraging, AsynchronousPolicies>::Type;
#endif

/// The asynchronous policy of --averaging, of one process.
inline HostAveraging asynchronous_policy(const TrainOptions& options, const std::shared_ptr<OrderLog>& log) {
    // With MPI, --inner divides it between the processes.
    const auto policy = [&]<class Policy>(const Policy& chosen) -> HostAveraging {
#ifdef CUPOLA_EXAMPLE_MPI
        if constexpr (!std::same_as<Policy, Backup>) {
            if (options.by_mpi())
                return SharedCentre<Policy, MpiConcatMean>{.policy = chosen, .processes = mpi_concat_mean(options)};
        }
#endif
        return chosen;
    };
    if (options.averaging == "hogwild") return policy(Hogwild{.ahead = options.ahead});
    if (options.averaging == "backup") {
        const int all_but_one = std::max(1, options.num_replicas - 1);
        return policy(
            Backup{.count = options.backup_count > 0 ? options.backup_count : all_but_one, .ahead = options.ahead});
    }
    const auto with = [&]<class Rule>(const Rule& rule) {
        const Order order = options.order == "replay"        ? Order::replay(read_order_log(options.order_log))
                            : options.order == "round-robin" ? Order::round_robin()
                                                             : Order::free();
        return policy(Asynchronous<Rule>{.rule = rule, .ahead = options.ahead, .order = order, .log = log});
    };
    if (options.averaging == "downpour") return with(Downpour{.every = options.period});
    Elastic elastic{.every = options.period};
    if (options.moving_rate) elastic.rate = *options.moving_rate;
    return with(elastic);
}

/// The averaging on the host, but for asynchronous ones.
template <class Named>
Named synchronous_policy(const TrainOptions& options) {
#ifdef CUPOLA_EXAMPLE_MPI
    const auto around = [&]<class Carrier>(const Carrier& carrier) -> Named {
        if (options.gradient_compression == "bfloat16")
            return averaging_around<Named>(options, Compressed<Carrier>{.policy = carrier});
        return averaging_around<Named>(options, carrier);
    };
    if (options.carrier() == "mpi-concat-mean") return around(mpi_concat_mean(options));
    if (options.carrier() == "mpi-all-reduce")
        return around(MpiAllReduce{.deadline_seconds = options.deadline, .folder = options.run.folder});
#endif
    return averaging_around<Named>(options, ConcatMean{});
}

#endif

}  // namespace cifar10
