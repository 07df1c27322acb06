// SPDX-License-Identifier: Apache-2.0
//
// "Processes" that are threads of one process: each has a training of its own, and they exchange through a hub.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include <cupola/core/error.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/processes/agreement/process_compressed_sums_agreement.hpp>
#include <cupola/processes/agreement/process_rows_agreement.hpp>
#include <cupola/processes/agreement/process_sums_agreement.hpp>
#include <cupola/processes/processes.hpp>

#include "../standard.hpp"

/// Where the messages of all threads are.
class Hub {
public:
    /// `survivors`: whether the processes are left of more.
    explicit Hub(int count, bool shares, bool survivors = false)
        : count_(count), shares_(shares), survivors_(survivors), parts_(static_cast<std::size_t>(count)) {}
    [[nodiscard]] bool survivors() const { return survivors_; }
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] bool shares() const { return shares_; }
    /// The number of messages so far.
    [[nodiscard]] int messages() const { return messages_; }
    /// The bytes of all messages so far.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// Sums that have begun are a channel of their own: they overtake other messages.
    enum class Channel { messages, sums };

    void send(int from, int to, std::span<const std::byte> bytes, Channel channel = Channel::messages) {
        const std::scoped_lock lock(mutex_);
        waiting_[{channel, from, to}].emplace_back(bytes.begin(), bytes.end());
        ++messages_;
        bytes_ += bytes.size();
        changed_.notify_all();
    }
    void receive(const cupola::ExchangeName& name, int from, int to, std::span<std::byte> bytes,
                 Channel channel = Channel::messages) {
        std::unique_lock lock(mutex_);
        auto& queue = waiting_[{channel, from, to}];
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !queue.empty() || left_.contains(from); });
        cupola::require<cupola::DeviceError>(!queue.empty(), "process ", from, " has not sent ", name.operation,
                                             " of step ", name.step);
        cupola::require(queue.front().size() == bytes.size(), "a message has ", queue.front().size(), " bytes, not ",
                        bytes.size());
        std::memcpy(bytes.data(), queue.front().data(), bytes.size());
        queue.pop_front();
    }
    /// A process that leaves sends nothing any more: the others do not wait for it.
    void leave(int number) {
        const std::scoped_lock lock(mutex_);
        left_.insert(number);
        changed_.notify_all();
    }
    void note_wait(int number, std::string_view operation) {
        const std::scoped_lock lock(mutex_);
        ++waits_[{number, std::string(operation)}];
    }
    /// How often a process has begun to wait for what others write to shared memory.
    [[nodiscard]] int waits(int number, const std::string& operation) {
        const std::scoped_lock lock(mutex_);
        return waits_[{number, operation}];
    }
    void note_sum(int number, std::size_t elements) {
        const std::scoped_lock lock(mutex_);
        begun_[number].push_back(elements);
    }
    /// The elements of each sum that a process has begun, in order.
    [[nodiscard]] std::vector<std::size_t> begun(int number) {
        const std::scoped_lock lock(mutex_);
        return begun_[number];
    }
    /// The bytes that a process has given to share().
    [[nodiscard]] std::size_t shared_bytes(int number) {
        const std::scoped_lock lock(mutex_);
        return parts_[static_cast<std::size_t>(number)].size();
    }
    std::vector<std::byte*> share(int number, std::size_t bytes) {
        std::unique_lock lock(mutex_);
        parts_[static_cast<std::size_t>(number)].resize(bytes);
        changed_.notify_all();
        const auto all_there = [&] {
            for (const auto& part : parts_) {
                if (part.empty()) return false;
            }
            return true;
        };
        changed_.wait(lock, all_there);
        std::vector<std::byte*> places;
        for (auto& part : parts_) places.push_back(part.data());
        return places;
    }

private:
    int count_;
    bool shares_, survivors_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::tuple<Channel, int, int>, std::deque<std::vector<std::byte>>> waiting_;
    std::map<int, std::vector<std::size_t>> begun_;
    std::map<std::pair<int, std::string>, int> waits_;
    std::set<int> left_;
    std::vector<std::vector<std::byte>> parts_;
    int messages_ = 0;
    std::size_t bytes_ = 0;
};

class ThreadProcesses : public cupola::Processes {
public:
    ThreadProcesses(Hub& hub, int number)
        : Processes(hub.count(), number, hub.survivors() ? std::vector<int>{hub.count()} : std::vector<int>()),
          hub_(hub) {}

    void exchange(const cupola::ExchangeName& name, std::span<const cupola::ProcessMessage> outgoing,
                  std::span<const cupola::ProcessMessage> incoming) override {
        for (const auto& each : outgoing) hub_.send(number(), each.process, {each.data, each.bytes});
        for (const auto& each : incoming) hub_.receive(name, each.process, number(), {each.data, each.bytes});
    }
    void sum(const cupola::ExchangeName& name, std::span<float> values) override {
        give(values, Hub::Channel::messages);
        take(name, values, Hub::Channel::messages);
    }
    void begin_sum(const cupola::ExchangeName& name, std::span<float> values) override {
        hub_.note_sum(number(), values.size());
        give(values, Hub::Channel::sums);
        begun_.emplace_back(name, values);
    }
    void finish_sums() override {
        for (const auto& [name, values] : begun_) take(name, values, Hub::Channel::sums);
        begun_.clear();
    }
    std::vector<std::byte*> share(std::size_t bytes) override {
        return hub_.shares() ? hub_.share(number(), bytes) : std::vector<std::byte*>();
    }
    [[nodiscard]] int sharing() const override { return hub_.shares() ? count() : 1; }
    void wait(const cupola::ExchangeName& name, cupola::FunctionRef<bool()> is_done,
              cupola::FunctionRef<bool(int)> waits_for) override {
        hub_.note_wait(number(), name.operation);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(200);
        const auto is_over = [&] {
            if (is_done()) return true;
            cupola::require<cupola::DeviceError>(std::chrono::steady_clock::now() < end, "process ", number(),
                                                 " has waited too long for ", name.operation, " of step ", name.step);
            return false;
        };
        Processes::wait(name, is_over, waits_for);
    }

private:
    void give(std::span<const float> values, Hub::Channel channel) {
        for (int p = 0; p < count(); ++p) {
            if (p != number()) hub_.send(number(), p, std::as_bytes(values), channel);
        }
    }
    void take(const cupola::ExchangeName& name, std::span<float> values, Hub::Channel channel) {
        std::vector<float> sums(values.size()), other(values.size());
        for (int p = 0; p < count(); ++p) {
            if (p != number()) hub_.receive(name, p, number(), std::as_writable_bytes(std::span(other)), channel);
            const float* const from = p == number() ? values.data() : other.data();
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
        }
        std::copy(sums.begin(), sums.end(), values.begin());
    }

    Hub& hub_;
    std::vector<std::pair<cupola::ExchangeName, std::span<float>>> begun_;
};

/// The mean of the rows of all threads.
struct ThreadConcatMean {
    static constexpr std::string_view name = "ThreadConcatMean";
    using Rows = cupola::ConcatMean;
    Rows rows{};
    Hub* hub = nullptr;
    int number = 0;
    [[nodiscard]] std::shared_ptr<cupola::Processes> join() const {
        return std::make_shared<ThreadProcesses>(*hub, number);
    }
};

/// The sum of the threads' weighted sums.
struct ThreadSum {
    static constexpr std::string_view name = "ThreadSum";
    using Rows = cupola::ConcatMean;
    Rows rows{};
    static constexpr bool sums = true;
    Hub* hub = nullptr;
    int number = 0;
    std::int64_t bucket_bytes = 0;
    [[nodiscard]] std::shared_ptr<cupola::Processes> join() const {
        return std::make_shared<ThreadProcesses>(*hub, number);
    }
};

/// Calls run(number) on one thread per process, and returns the message of what each throws; empty if nothing.
template <class Run>
std::vector<std::string> on_threads(int count, Run&& run) {
    std::vector<std::string> errors(static_cast<std::size_t>(count));
    std::vector<std::jthread> threads;
    for (int number = 0; number < count; ++number) {
        threads.emplace_back([&, number] {
            try {
                run(number);
            } catch (const std::exception& error) {
                errors[static_cast<std::size_t>(number)] = error.what();
            }
        });
    }
    threads.clear();  // joins
    return errors;
}
