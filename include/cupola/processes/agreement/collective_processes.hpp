// SPDX-License-Identifier: Apache-2.0
//
// CollectiveProcesses: the processes of a collective. Between steps they exchange the values that they compare by calls
// of the collective; the requests for the next steps are flags in the blocks of each step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/collective_agreement.hpp>
#include <cupola/parallel/agreement/gathered_peers.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/processes/agreement/process_checks.hpp>
#include <cupola/processes/agreement/same_training.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/policy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Collective, class D, class T>
class CollectiveProcesses final : public ProcessGroup {
public:
    /// Called after the devices have joined. `replicas` and `collective` must outlive the object; `lost` is that of
    /// ProcessGroup.
    [[gnu::cold]] CollectiveProcesses(Replicas<D, T>& replicas, Collective& collective, std::vector<int> lost)
        : ProcessGroup(replicas.placement().process_count(), replicas.placement().process_number(), std::move(lost)),
          replicas_(replicas),
          collective_(collective),
          peers_(*this, replicas),
          mine_(unit),
          ranks_(unit *
                 static_cast<std::size_t>(replicas.placement().process_count() * replicas.placement().device_count())) {
    }

    [[nodiscard]] Peers& peers() { return peers_; }

    [[gnu::cold]] void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        Head head{.step = name.step, .bytes = bytes, .operation = {}};
        name.operation.copy(head.operation.data(), head.operation.size());
        const auto count_of_all = static_cast<std::size_t>(count());
        const auto place = [&](std::size_t process) { return blocks + process * bytes; };
        for (std::size_t begin = 0; begin < bytes; begin += payload) {
            const std::size_t part = std::min(payload, bytes - begin);
            std::memcpy(mine_.data(), &head, sizeof head);
            std::memcpy(mine_.data() + sizeof head, place(static_cast<std::size_t>(number())) + begin, part);
            replicas_.threads().run([&](int device) {
                [[maybe_unused]] const auto team = replicas_.context(device).team();
                try {
                    collective_.gather(device, *replicas_.at(device).queue, replicas_.context(device), name, mine_,
                                       device == 0 ? std::span(ranks_) : std::span<std::byte>());
                } catch (const Error& error) {
                    collective_.break_off(device, name.step, error.what());  // the other devices wait for this one
                    throw;
                }
            });
            for (std::size_t p = 0; p < count_of_all; ++p) {
                const std::byte* const of =
                    ranks_.data() + p * static_cast<std::size_t>(replicas_.placement().device_count()) * unit;
                require_same_call(head, of, static_cast<int>(p));
                std::memcpy(place(p) + begin, of + sizeof head, part);
            }
        }
    }
    [[nodiscard]] bool is_collective() const override { return true; }
    void set_step_flags(int flags) override { peers_.set_flags(flags); }
    [[nodiscard]] int step_flags_of_all() const override { return peers_.flags_of_all(); }
    void read_together(bool on) override { peers_.read_together(on); }
    void compare_remaining() override { peers_.compare_before(std::numeric_limits<std::int64_t>::max()); }

private:
    /// Compares the parameters after a step when all processes have read its report, before the step is queued that
    /// uses its slot again: at that point all processes have queued the same steps.
    class ComparingPeers final : public GatheredPeers<D, T> {
        using GatheredPeers<D, T>::replicas_;

    public:
        ComparingPeers(ProcessGroup& processes, Replicas<D, T>& replicas)
            : GatheredPeers<D, T>(replicas), processes_(processes) {}
        [[nodiscard]] bool any() const override { return true; }
        void compare(std::int64_t step, const ComparedHashes& hashes, const std::exception_ptr& error) override {
            pending_.push_back({step, hashes, error});
        }
        void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
            processes_.gather(name, blocks, bytes);
        }
        void begin_step(std::int64_t step) override { compare_before(step - D::max_steps_in_flight + 1); }
        void forget() override { pending_.clear(); }
        [[gnu::cold]] void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) override {
            try {
                exchange_texts_of_replicas(processes_, replicas_.placement(), step, of_replicas);
            } catch (const ProcessLost&) {
                throw;
            } catch (const DeviceError&) {  // the collective has failed; this process's own finding is reported
            }
        }
        /// Makes the pending comparisons of the steps before `end`.
        void compare_before(std::int64_t end) {
            while (!pending_.empty() && pending_.front().step < end) {
                const PendingComparison first = std::move(pending_.front());
                pending_.pop_front();
                const auto update = [&](bool differs) {
                    for (auto& state : replicas_.devices()) state.updating = differs;
                };
                update(true);  // not healthy, unless they are equal
                compare_processes(processes_, first.step, first.hashes, first.error);
                update(false);
            }
        }

    private:
        struct PendingComparison {
            std::int64_t step = 0;
            ComparedHashes hashes{};
            std::exception_ptr error;
        };
        ProcessGroup& processes_;
        std::deque<PendingComparison> pending_;
    };

    /// All calls of the collective have the same size, so that processes in different gathers detect that.
    static constexpr std::size_t unit = 1024;
    struct Head {
        std::int64_t step = -1;
        std::uint64_t bytes = 0;
        std::array<char, 64> operation{};
        bool operator==(const Head&) const = default;
        [[nodiscard]] std::string description() const {
            const std::string_view all(operation.data(), operation.size());
            return text(all.substr(0, all.find('\0')), " of ", bytes, " bytes",
                        step >= 0 ? text(" of step ", step) : std::string());
        }
    };
    static constexpr std::size_t payload = unit - sizeof(Head);

    void require_same_call(const Head& mine, const std::byte* of, int process) const {
        Head other;
        std::memcpy(&other, of, sizeof other);
        require<DeviceError>(other == mine, "process ", number_at_start(process), " exchanges ", other.description(),
                             ", and process ", number_at_start(number()), ' ', mine.description(),
                             ": all processes of a training make the same calls in the same order");
    }

    Replicas<D, T>& replicas_;
    Collective& collective_;
    ComparingPeers peers_;
    std::vector<std::byte> mine_, ranks_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
