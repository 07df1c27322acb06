// SPDX-License-Identifier: Apache-2.0
//
// The calls of CUDA in a captured step of a training, recorded by CUPTI: no allocation, no wait and no copy, except one wait
// and the copies of each row and of the mean by ConcatMean; and the nodes of its graphs.
#include "../../test.hpp"

#include <mutex>

#include <cuda.h>
#include <cupti.h>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>
#ifdef CUPOLA_TEST_NCCL
#include <cupola/nccl.hpp>
#endif

#include "../synthetic_batches.hpp"

namespace {

/// Counts the calls of functions of the runtime and the driver by name during its lifetime.
class Calls : NotCopied {
public:
    Calls() {
        static const CUpti_SubscriberHandle subscriber = subscribe();
        subscriber_ = subscriber;
        counted_.clear();
        for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API})
            enable(1, domain);
    }
    ~Calls() {
        for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API})
            enable(0, domain);
    }

    [[nodiscard]] static std::map<std::string, int> counted() {
        const std::scoped_lock lock(mutex_);
        return counted_;
    }

private:
    [[noreturn]] static void skip(const char* what, CUptiResult status) {
        const char* words = "";
        cuptiGetResultString(status, &words);
        std::printf("skipped: %s of CUPTI is refused here: %s\n", what, words);
        std::exit(77);
    }
    static CUpti_SubscriberHandle subscribe() {
        CUpti_SubscriberHandle result{};
        const CUptiResult status = cuptiSubscribe(&result, &hear, nullptr);
        if (status != CUPTI_SUCCESS) skip("cuptiSubscribe", status);
        return result;
    }
    void enable(std::uint32_t on, CUpti_CallbackDomain domain) const {
        const CUptiResult status = cuptiEnableDomain(on, subscriber_, domain);
        if (status != CUPTI_SUCCESS) skip("cuptiEnableDomain", status);
    }
    static void CUPTIAPI hear(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* about) {
        const auto* const call = static_cast<const CUpti_CallbackData*>(about);
        if (call->callbackSite != CUPTI_API_ENTER) return;
        const std::scoped_lock lock(mutex_);
        ++counted_[call->functionName];
    }

    static inline std::mutex mutex_;
    static inline std::map<std::string, int> counted_;
    CUpti_SubscriberHandle subscriber_{};
};

constexpr int steps = 10;

/// The functions that a step must not call, by the beginnings of their names.
constexpr std::string_view waits[] = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
                                      "cuStreamSynchronize",   "cuCtxSynchronize",      "cuEventSynchronize"};
constexpr std::string_view allocations[] = {
    "cudaMalloc",       "cudaFree",          "cudaHostAlloc",        "cudaHostRegister", "cudaHostUnregister",
    "cudaStreamCreate", "cudaEventCreate",   "cudaGraphInstantiate", "cuMemAlloc",       "cuMemFree",
    "cuMemHostAlloc",   "cuMemHostRegister", "cuMemCreate",          "cuMemMap",         "cuMemRelease",
    "cuModuleLoad",     "cuLibraryLoad"};
constexpr std::string_view copies[] = {"cudaMemcpy", "cuMemcpy"};

int calls_of(const std::map<std::string, int>& counted, std::span<const std::string_view> beginnings) {
    // A call of the runtime may be recorded again as a call of the driver: the larger number is the number of calls.
    int of_runtime = 0, of_driver = 0;
    for (const auto& [name, count] : counted) {
        for (const std::string_view beginning : beginnings) {
            if (!name.starts_with(beginning)) continue;
            (name.starts_with("cuda") ? of_runtime : of_driver) += count;
            break;
        }
    }
    return std::max(of_runtime, of_driver);
}

std::string text_of(const std::map<std::string, int>& counted) {
    std::string result;
    for (const auto& [name, count] : counted) result += text(result.empty() ? "" : ", ", name, ' ', count);
    return result;
}

struct Allowed {
    int waits = 0, copies = 0;
};

template <class Net, class Averaging>
void expect_only_the_step(const char* what, int replicas, const Allowed& allowed) {
    const gpu_tests::SyntheticBatches batches(128);
    DataParallel<Net, Cifar10Loss, Sgd, Averaging, Cuda> training(
        {.replicas = replicas,
         .batch_size = 128,
         .seed = 1,
         .optimizer = {.learning_rate = 0.01, .momentum = 0.9},
         .moving_average = {.decay = 0.999}});
    for (int i = 0; i < 5; ++i) training.step(batches);
    INFO(what);
    CHECK_MESSAGE(training.not_captured().empty(), "a part of the step is not captured: ", training.not_captured());
    std::map<std::string, int> counted;
    double loss = 0;
    {
        const Calls calls;
        for (int i = 0; i < steps; ++i) {
            training.queue(batches);
            while (const StepReport* const report = training.poll_report()) loss = report->loss;
        }
        while (const StepReport* const report = training.poll_report(0)) loss = report->loss;
        counted = Calls::counted();
    }
    std::printf("calls: %s, %d steps: %s\n", what, steps, text_of(counted).c_str());
    INFO(text_of(counted));
    CHECK(loss > 0);
    CHECK_MESSAGE(!counted.empty(), "CUPTI hears nothing but silence");
    CHECK_MESSAGE(calls_of(counted, allocations) == 0, "a step allocates nothing but its captured work's own");
    CHECK(calls_of(counted, waits) <= allowed.waits * steps);
    CHECK(calls_of(counted, copies) <= allowed.copies * steps);

    training.for_each_captured(0, [&](const CudaQueue::Recording& recording) {
        for (const CudaQueue::Recording::Graph& graph : recording.graphs) {
            const impl::CapturedWork::Nodes nodes = graph.captured.nodes();
            std::string line;
            for (std::size_t type = 0; type < nodes.size(); ++type) {
                if (nodes[type] == 0) continue;
                const std::string of = type == cudaGraphNodeTypeKernel   ? "kernels"
                                       : type == cudaGraphNodeTypeMemset ? "fills"
                                                                         : text("nodes of type ", type);
                line += text(line.empty() ? "" : ", ", of, ' ', nodes[type]);
            }
            if (line.empty()) continue;
            std::printf("calls: %s, a graph: %s\n", what, line.c_str());
            CHECK(nodes[cudaGraphNodeTypeKernel] > 0);
            for (const cudaGraphNodeType none :
                 {cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeHost, cudaGraphNodeTypeMemAlloc, cudaGraphNodeTypeMemFree,
                  cudaGraphNodeTypeWaitEvent}) {
                CHECK_MESSAGE(nodes[none] == 0, "a graph has ", nodes[none], " nodes of type ", static_cast<int>(none));
            }
        }
    });
}

using Net16 = InPrecision<MixedBFloat16, Cifar10Net>;

}  // namespace

TEST_CASE("with one replica a captured step allocates nothing, waits for nothing and copies nothing") {
    expect_only_the_step<Cifar10Net, ConcatMean>("one replica, float", 1, {});
    expect_only_the_step<Net16, ConcatMean>("one replica, bfloat16", 1, {});
}

TEST_CASE("two replicas averaged by ConcatMean: one wait, a copy of each row and one of the mean") {
    expect_only_the_step<Cifar10Net, ConcatMean>("two replicas, ConcatMean", 2, {.waits = 1, .copies = 3});
}

#ifdef CUPOLA_TEST_NCCL
TEST_CASE("averaged by NcclAllReduce, a captured step allocates nothing, waits for nothing and copies nothing") {
    expect_only_the_step<Cifar10Net, NcclAllReduce>("two replicas, NcclAllReduce of one rank", 2, {});
}
#endif
