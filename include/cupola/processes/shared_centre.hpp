// SPDX-License-Identifier: Apache-2.0
//
// SharedCentre<Policy, Processes>: asynchronous training in several processes of one machine. The replicas of an
// asynchronous policy are divided between the processes of another policy, and their centre is in memory that all of
// these share:
//
//   DataParallel<Net, Loss, Sgd, SharedCentre<Asynchronous<Downpour>, MpiConcatMean>, Host> training(
//       {.replicas = 4, .averaging = {.policy = {.rule = {.every = 4}}, .processes = {.folder = "run1"}}});
//
// All is as with the policy in one process, with these differences:
//
//   - A batch is computed by a replica of the process that has the replica of its number, which alone prepares it. In
//     free order it goes to the next of these that is free; the exchanges of all processes have one order.
//   - The bits are those of one process with as many replicas, round robin or if it replays the log, on as many devices
//     as all processes have. A log has the devices of all processes, and each process has all of it.
//   - All processes queue the same steps, and call restore() and the members that wait for steps, such as evaluate(),
//     parameters() and state(), after the same ones. An inspector may be that of one process alone, and sees its first
//     replica without waiting for others.
//   - An error of one process in a step ends the steps in flight of all, which return to the state of the last check;
//     the others throw an error of the same type, which names that process. So does a state that some processes alone
//     refuse in restore(); one that all refuse changes nothing. A process that is killed, or that others have waited
//     for until the deadline, ends them as in other steps (docs/how-to/processes.md).
//
// Backup has no centre that replicas exchange with: it is an InvalidArgument in several processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/same_settings.hpp>
#include <cupola/processes/run/sent_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Policy, class Processes>
struct SharedCentre {
    static constexpr std::string_view name = Policy::name;
    static constexpr bool asynchronous = true;
    static constexpr bool has_force = has_elastic_force<Policy>;
    using Carrier = Processes;

    /// An asynchronous policy: Asynchronous<...> or Hogwild.
    Policy policy{};
    /// A policy that spans processes, such as MpiConcatMean, of which the processes, the deadline and the folder are
    /// used. It averages nothing.
    Processes processes{};

    [[nodiscard]] const Carrier& carrier() const { return processes; }
    /// Those of the asynchronous policy.
    [[nodiscard]] std::string description() const { return policy.description(); }
    [[nodiscard]] std::string warning(int replicas) const {
        if constexpr (requires { policy.warning(replicas); }) return policy.warning(replicas);
        return {};
    }
    template <class D>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message;
        if constexpr (!TrainsAsynchronously<Policy> || ChoosesPolicy<Policy>) {
            message << "SharedCentre needs an asynchronous policy, such as Asynchronous<Downpour>, and "
                    << short_type_name<Policy>() << " is none";
        } else if constexpr (!SpansProcesses<Processes>) {
            message << "SharedCentre needs a policy that spans processes, such as MpiConcatMean, and "
                    << short_type_name<Processes>() << " is none";
        } else {
            message = Policy::template diagnostic<D>();
        }
        return message;
    }
};

namespace impl {

class ProcessesOfCentre final : public AsynchronousProcesses {
public:
    /// `processes` must outlive the object; `policy` is the name of the policy, for errors.
    ProcessesOfCentre(Processes& processes, std::string_view policy) : processes_(processes), policy_(policy) {}

    [[nodiscard, gnu::cold]] std::byte* share(std::size_t bytes) override {
        const std::vector<std::byte*> parts = processes_.share(processes_.number() == 0 ? bytes : 1);
        require(!parts.empty(), policy_, " exchanges with a centre in memory that all processes share, and of ",
                processes_.count(), " processes ", processes_.sharing(), " can share memory with process ",
                processes_.number_at_start(processes_.number()),
                ", those of its machine: between machines use Periodic or ElasticAveraging");
        return parts.front();
    }
    void wait(const ExchangeName& name, FunctionRef<bool()> is_done, FunctionRef<bool(int)> waits_for) override {
        processes_.wait(name, is_done, waits_for);
    }
    void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        processes_.gather(name, blocks, bytes);
    }
    [[gnu::cold]] void write_error(const std::exception_ptr& error, std::byte* to) const override {
        const SentError sent(error);
        std::memcpy(to, &sent, sizeof sent);
    }
    [[nodiscard, gnu::cold]] std::exception_ptr read_error(const std::byte* from, int process) const override {
        SentError sent;
        std::memcpy(&sent, from, sizeof sent);
        try {
            sent.throw_from(processes_.number_at_start(process));
        } catch (...) {
            return std::current_exception();
        }
    }

private:
    static_assert(sizeof(SentError) <= error_bytes);
    Processes& processes_;
    std::string_view policy_;
};

/// A number by which processes compare the logs that they replay; 0 without one.
[[nodiscard, gnu::cold]] inline std::uint64_t fingerprint_of(const OrderLog* log) {
    std::uint64_t hash = 0;
    const auto add = [&](std::uint64_t value) { hash = (hash ^ (value + 1)) * 0x100000001b3; };
    if (log == nullptr) return hash;
    for (const std::uint64_t each :
         {static_cast<std::uint64_t>(log->replicas), static_cast<std::uint64_t>(log->devices), log->seed})
        add(each);
    for (const char each : log->rule) add(static_cast<unsigned char>(each));
    add(static_cast<std::uint64_t>(log->first_step));
    for (const std::uint16_t each : log->claims) add(each);
    for (const std::uint16_t each : log->turns) add(each);
    return hash;
}

template <class Policy, class Carrier, class D, class T>
struct AgreementOf<SharedCentre<Policy, Carrier>, D, T> {
    using Inner = AgreementOf<Policy, D, T>;
    using Engine = typename Inner::Engine;

    [[nodiscard]] static AgreementTraits traits(const SharedCentre<Policy, Carrier>& shared, std::int64_t elements) {
        return Inner::traits(shared.policy, elements);
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(
        const SharedCentre<Policy, Carrier>& shared, Replicas<D, T>& replicas) {
        Processes& all = *replicas.settings().processes;
        if constexpr (requires { shared.processes.environment->survives(); }) {
            require(shared.processes.environment == nullptr || !shared.processes.environment->survives(), Policy::name,
                    " ends when a process is lost, and cannot go on without the replicas of others: make the "
                    "environment without .survives");
        }
        if (all.count() == 1) return Inner::make(shared.policy, replicas, nullptr);
        const RunSettings log{{"order log", text(fingerprint_of(shared.policy.run().order.log()))}};
        require_same_settings(all, log);
        return Inner::make(shared.policy, replicas, std::make_unique<ProcessesOfCentre>(all, Policy::name));
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
