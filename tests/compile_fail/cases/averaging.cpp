// SPDX-License-Identifier: Apache-2.0

// case: averaging_without_average
// An averaging policy whose function has another name.
// expect: Mean is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, std::span<float>) const`
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Mean {
    static constexpr std::string_view name = "mean";
#ifdef WITH_ERROR
    void mean(HostContext&, const GradientRows&, std::span<float>) const {}
#else
    void average(HostContext&, const GradientRows&, std::span<float>) const {}
#endif
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Mean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: averaging_without_name
// An averaging policy that the log could not name.
// expect: Mean is not an averaging policy: it lacks `static constexpr std::string_view name`
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Mean {
#ifndef WITH_ERROR
    static constexpr std::string_view name = "mean";
#endif
    void average(HostContext&, const GradientRows&, std::span<float>) const {}
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Mean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: compressed_in_float
// Gradients that are moved in the type that they have.
// expect: Compressed moves gradients in BFloat16, not in float
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Averaging = Compressed<ConcatMean, float>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: compressed_parameters
// A policy that moves parameters, and no gradients.
// expect: Compressed moves gradients, and LocalSgd moves parameters: use it without Compressed
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct LocalSgd {
    static constexpr std::string_view name = "LocalSgd";
    [[nodiscard]] std::int64_t every() const { return 4; }
    void agree(HostContext&, const ParameterRows&) const {}
};

#ifdef WITH_ERROR
using Averaging = Compressed<LocalSgd>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: compressed_twice
// A policy that compresses a policy that compresses.
// expect: Compressed cannot wrap Compressed<ConcatMean, bfloat16>, whose gradients are compressed already
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Averaging = Compressed<Compressed<ConcatMean>>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: compressed_without_average
// A compressed policy whose function has another name.
// expect: Middle is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, std::span<float>) const`
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

struct Middle {
    static constexpr std::string_view name = "middle";
    void middle(HostContext&, const GradientRows&, std::span<float>) const {}
};

#ifdef WITH_ERROR
using Averaging = Compressed<Middle>;
#else
using Averaging = Compressed<ConcatMean>;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: nccl_on_host
// NCCL knows no CPU.
// expect: NcclAllReduce needs a device that NCCL supports, and Host is not one: use ConcatMean instead
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

#ifdef WITH_ERROR
using Averaging = NcclAllReduce;
#else
using Averaging = ConcatMean;
#endif

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, Averaging, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: nccl_without_its_header
// A device that NCCL knows, and no <cupola/nccl.hpp>.
// expect: NcclAllReduce on Gpu needs #include <cupola/nccl.hpp>
struct Gpu : Host {
    static constexpr std::string_view name = "Gpu";
    static constexpr bool has_nccl = true;
};

#ifdef WITH_ERROR
using Averaging = NcclAllReduce;
#else
using Averaging = ConcatMean;
#endif

static_assert(static_assert_message<agreement_diagnostic<Averaging, Gpu>()>());
