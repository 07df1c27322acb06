// SPDX-License-Identifier: Apache-2.0
//
// A collective over processes that are threads (thread_processes.hpp): the devices of a process add their sums, and the
// processes exchange these and the devices' blocks.
#pragma once

#include <barrier>

#include <cupola/parallel/agreement.hpp>
#include <cupola/processes/agreement/collective_processes.hpp>

#include "../standard.hpp"
#include "parallel/policies.hpp"
#include "thread_processes.hpp"

template <class D>
class SumAcrossProcesses;

struct SumOfProcesses {
    static constexpr std::string_view name = "SumOfProcesses";
    std::int64_t bucket_elements = 64;
    Hub* hub = nullptr;
    int number = 0;
    template <class D>
    using Collective = SumAcrossProcesses<D>;
};

template <class D>
class SumAcrossProcesses : public SumAcross<D> {
    using Base = SumAcross<D>;

public:
    SumAcrossProcesses(const SumOfProcesses& policy, const cupola::CollectiveSetup& setup)
        : Base(policy, setup),
          hub_(*policy.hub),
          number_(policy.number),
          elements_(static_cast<std::size_t>(setup.elements)),
          blocks_(static_cast<std::size_t>(setup.devices)),
          barrier_(std::make_unique<std::barrier<>>(setup.devices)) {}

    [[nodiscard]] static cupola::ProcessNumber process(const SumOfProcesses& policy) {
        return {policy.hub->count(), policy.number};
    }
    void join(int device, typename D::Queue& queue, cupola::HostContext& context, const cupola::RankBlocks& blocks) {
        Base::join(device, queue, context, blocks);
        blocks_[static_cast<std::size_t>(device)] = blocks;
    }
    cupola::GradientSums finish(int device, typename D::Queue& queue, cupola::HostContext& context) {
        const cupola::GradientSums here = Base::finish(device, queue, context);
        barrier_->arrive_and_wait();
        if (device == 0) exchange(here);
        barrier_->arrive_and_wait();
        const cupola::RankBlocks& blocks = blocks_[static_cast<std::size_t>(device)];
        std::copy(gathered_.begin(), gathered_.end(), blocks.all.begin());
        return {std::span<const float>(total_).first(elements_), total_.data() + elements_};
    }

    void gather(int device, typename D::Queue&, cupola::HostContext&, const cupola::ExchangeName& name,
                std::span<const std::byte> mine, std::span<std::byte> all) {
        if (device != 0) return;
        for (int p = 0; p < hub_.count(); ++p) {
            if (p != number_) hub_.send(number_, p, mine);
        }
        for (int p = 0; p < hub_.count(); ++p) {
            // The devices of a process give the same.
            const std::span<std::byte> to = all.subspan(static_cast<std::size_t>(p) * blocks_.size() * mine.size());
            std::vector<std::byte> theirs(mine.begin(), mine.end());
            if (p != number_) hub_.receive(name, p, number_, theirs);
            for (std::size_t d = 0; d < blocks_.size(); ++d)
                std::copy(theirs.begin(), theirs.end(), to.subspan(d * mine.size()).begin());
        }
    }

private:
    void exchange(const cupola::GradientSums& here) {
        std::vector<float> mine(here.values.begin(), here.values.end());
        mine.push_back(*here.divisor);
        std::vector<std::byte> blocks;
        for (const cupola::RankBlocks& each : blocks_) blocks.insert(blocks.end(), each.mine.begin(), each.mine.end());
        total_.assign(mine.size(), 0.0F);
        gathered_.clear();
        for (int p = 0; p < hub_.count(); ++p) {
            if (p == number_) continue;
            hub_.send(number_, p, std::as_bytes(std::span(mine)));
            hub_.send(number_, p, blocks);
        }
        for (int p = 0; p < hub_.count(); ++p) {
            std::vector<float> theirs = mine;
            std::vector<std::byte> block = blocks;
            if (p != number_) {
                hub_.receive({"the sums"}, p, number_, std::as_writable_bytes(std::span(theirs)));
                hub_.receive({"the blocks"}, p, number_, block);
            }
            for (std::size_t i = 0; i < total_.size(); ++i) total_[i] += theirs[i];
            gathered_.insert(gathered_.end(), block.begin(), block.end());
        }
    }

    Hub& hub_;
    int number_;
    std::size_t elements_;
    std::vector<cupola::RankBlocks> blocks_;
    std::vector<float> total_;
    std::vector<std::byte> gathered_;
    std::unique_ptr<std::barrier<>> barrier_;
};
