// SPDX-License-Identifier: Apache-2.0
//
// CudaRecording, HeldWork and StepLaunches: the data that the queue of `Cuda` keeps about work that is queued in every
// step: the graphs in which it was captured, the work that is held back, and the number of launches of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <cupola/device/cuda/graph.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The launches of one step on a device.
struct StepLaunches {
    /// The number of kernels, copies and fills: in graphs, and launched by the queue itself. Those that an averaging
    /// policy queues are not included.
    std::int64_t all = 0, in_graphs = 0;
    std::int64_t graphs = 0;
    /// Whether all recorded work was in graphs; otherwise `all` does not include it.
    bool captured = true;
};

namespace impl {

/// Work that is called later, or never. Its memory is reused for the next one.
class HeldWork {
public:
    HeldWork() = default;
    HeldWork(const HeldWork&) = delete;
    HeldWork& operator=(const HeldWork&) = delete;
    ~HeldWork() { reset(); }

    template <class Work>
    void hold(const Work& work) {
        static_assert(alignof(Work) <= alignof(std::max_align_t));
        reset();
        if (memory_.size() < sizeof(Work)) memory_.resize(sizeof(Work));
        ::new (static_cast<void*>(memory_.data())) Work(work);
        run_ = [](std::byte* memory) { (*std::launder(reinterpret_cast<Work*>(memory)))(); };
        destroy_ = [](std::byte* memory) { std::destroy_at(std::launder(reinterpret_cast<Work*>(memory))); };
    }
    void operator()() { run_(memory_.data()); }
    void reset() {
        if (destroy_ != nullptr) std::exchange(destroy_, nullptr)(memory_.data());
    }

private:
    std::vector<std::byte> memory_;
    void (*run_)(std::byte*) = nullptr;
    void (*destroy_)(std::byte*) = nullptr;
};

/// The recording of work that is queued in every step.
struct CudaRecording {
    struct Graph {
        /// The recording whose work precedes this one's in the graph; null if it is alone.
        const CudaRecording* before = nullptr;
        /// The first kernel of the graph, if it makes the writes before the work; its arguments differ in each launch.
        const void* first = nullptr;
        /// Whether the work contains the copy of land().
        bool lands = false;
        CapturedWork captured{};
    };

    bool seen = false;
    /// One graph per recording that this work has followed, and one if it has been alone. Their addresses do not
    /// change.
    std::deque<Graph> graphs{};

    [[nodiscard]] Graph& after(const CudaRecording* before, const void* first) {
        for (Graph& graph : graphs) {
            if (graph.before == before && graph.first == first) return graph;
        }
        graphs.push_back({.before = before, .first = first});
        return graphs.back();
    }
    [[nodiscard]] std::string refused() const {
        for (const Graph& graph : graphs) {
            if (!graph.captured.refused().empty()) return graph.captured.refused();
        }
        return {};
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
