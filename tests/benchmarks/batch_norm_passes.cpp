// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation with a ReLU, forward and backward (in place, as in a network), beside loops that do no more than
// read and write the same arrays in the same order: the best times, by turns in one process. Before each, the arrays that
// the layer before it writes are written.
//
//   batch_norm_passes [threads] [rounds]
#include <random>

#include <cupola/host.hpp>
#include <cupola/ops/host/batch_norm.hpp>

#include "../standard.hpp"

using namespace cupola;

namespace {

struct Case {
    std::int64_t batch, size, channels;
};

template <class Function>
double milliseconds(Function f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

constexpr std::int64_t block = 16384, lanes = 64;
volatile float sink;

/// Calls f for pieces of the floats from `begin` to `end`, each thread in its own part of them.
template <class Function>
void for_pieces(const HostContext& context, std::int64_t count, Function f) {
    const std::int64_t threads = context.threads(), blocks = count / block;
    parallel_for(context, threads, [&](std::int64_t thread) {
        const std::int64_t begin = thread * blocks / threads, end = (thread + 1) * blocks / threads;
        for (std::int64_t i = begin; i < end; ++i) f(i * block);
    });
}
void read(const HostContext& context, std::int64_t count, std::initializer_list<const float*> from) {
    for_pieces(context, count, [&](std::int64_t begin) {
        float sums[lanes] = {}, sum = 0;
        for (std::int64_t i = begin; i < begin + block; i += lanes) {
            for (const float* values : from) {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) sums[k] += values[i + k];
            }
        }
        for (const float value : sums) sum += value;
        sink = sum;
    });
}
void write_sum(const HostContext& context, std::int64_t count, const float* a, const float* b, float* to) {
    for_pieces(context, count, [&](std::int64_t begin) {
#pragma omp simd
        for (std::int64_t i = begin; i < begin + block; ++i) to[i] = b == nullptr ? a[i] : a[i] + b[i];
    });
}

template <class T>
void compare(HostContext& context, int rounds, const Case& c) {
    const Shape shape{c.size, c.size, c.channels};
    const ops::BatchNorm<Host, T> norm(
        BuildContext<Host, T>{
            .context = context, .batch = c.batch, .input = shape, .output = shape, .activation = Activation::relu},
        BatchNormShape{c.channels});
    const auto bytes = static_cast<std::size_t>(c.batch * shape.size()) * sizeof(T);
    const std::int64_t floats = static_cast<std::int64_t>(bytes / sizeof(float));
    std::vector<HostArena> tensors;
    for (const char* name : {"x before", "dy before", "x", "y", "dy"}) tensors.emplace_back(aligned(bytes), name);
    const auto at = [&](std::size_t i) { return reinterpret_cast<float*>(tensors[i].data()); };
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const std::size_t i : {0, 1}) {
        T* const values = reinterpret_cast<T*>(tensors[i].data());
        for (std::int64_t k = 0; k < c.batch * shape.size(); ++k) impl::put(values[k], normal(random));
    }
    HostArena saved(norm.needs().saved, "saved"), scratch(norm.needs().scratch, "scratch");
    std::vector<float> parameters(static_cast<std::size_t>(2 * c.channels), 1.0F), gradients(parameters);
    BackwardArgs<Host, T> args{{.context = context,
                                .input = reinterpret_cast<T*>(at(2)),
                                .output = reinterpret_cast<T*>(at(3)),
                                .saved = saved.data(),
                                .scratch = scratch.data()}};
    args.parameters = {parameters.data(), parameters.data() + c.channels};
    args.parameter_gradients = {gradients.data(), gradients.data() + c.channels};
    args.input_gradient = args.output_gradient = reinterpret_cast<T*>(at(4));
    const auto best = [&](double& ms, std::size_t i, auto f) {
        write_sum(context, floats, at(i == 2 ? 0 : 1), nullptr, at(i));
        ms = std::min(ms, milliseconds(f));
    };
    double forward = 1e9, backward = 1e9, forward_loop = 1e9, backward_loop = 1e9;
    for (int round = 0; round <= rounds; ++round) {
        best(forward, 2, [&] { norm.forward(args); });
        best(backward, 4, [&] { norm.backward(args); });
        best(forward_loop, 2, [&] {
            read(context, floats, {at(2)});
            write_sum(context, floats, at(2), nullptr, at(3));
        });
        best(backward_loop, 4, [&] {
            read(context, floats, {at(2), at(4)});
            write_sum(context, floats, at(2), at(4), at(4));
        });
    }
    std::printf("%-9s%4lld: %2lld x %-2lld x %3lld%10.3f%8.2f%10.3f%8.2f\n", sizeof(T) == 4 ? "float" : "bfloat16",
                static_cast<long long>(c.batch), static_cast<long long>(c.size), static_cast<long long>(c.size),
                static_cast<long long>(c.channels), forward, forward / forward_loop, backward,
                backward / backward_loop);
    std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 1;
    const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 31;
    HostContext context(0, {.threads = threads});
    const auto team = context.team();
    context.flush_denormals();
    std::printf("%2d threads; batch: image    %10s%8s%10s%8s\n", threads, "forward", "/ loop", "backward", "/ loop");
    constexpr Case cases[] = {{128, 32, 16}, {128, 16, 32}, {128, 8, 64}, {8, 56, 64}, {8, 56, 256}};
    for (const Case& c : cases) compare<float>(context, rounds, c);
    for (const Case& c : cases) compare<BFloat16>(context, rounds, c);
}
