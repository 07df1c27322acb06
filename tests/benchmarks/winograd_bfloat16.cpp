// SPDX-License-Identifier: Apache-2.0
//
// Convolutions in bfloat16 with the Winograd option beside those without it, alternating in one process: forward,
// backward data, backward weights, and the packing of the weights. On a processor with AMX both are oneDNN's.
//
//   winograd_bfloat16 [threads] [rounds]      a table: medians of each, and of the ratio in each round
#include <array>

#include <cupola/host.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "../reference/compare.hpp"
#include "../standard.hpp"

using namespace cupola;

namespace {

constexpr std::int64_t batch = 128;
constexpr std::array<const char*, 5> passes{"forward", "data", "weights", "packing", "sum"};

double milliseconds_of(auto f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}
double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
}

/// A convolution of one device, with tensors of its own. `data` and `weights` say which gradients backward computes.
class Bench {
public:
    Bench(HostContext& context, const ConvolutionShape& shape, bool data, bool weights)
        : convolution_({.context = context,
                        .batch = batch,
                        .input = {shape.height.input, shape.width.input, shape.in_channels},
                        .output = {shape.height.output, shape.width.output, shape.out_channels},
                        .input_gradient = data,
                        .parameter_gradients = weights},
                       shape),
          args_{{.context = context}} {
        reference::Random random(1);
        const std::int64_t inputs = batch * shape.height.input * shape.width.input * shape.in_channels;
        const std::int64_t outputs = batch * shape.height.output * shape.width.output * shape.out_channels;
        reference::Floats x = random.normal(inputs, 1.0, 0.5);
        for (float& value : x) value = std::max(value, 0.0F);  // as a ReLU leaves them
        args_.input = put<BFloat16>(x);
        args_.output = put<BFloat16>(reference::Floats(static_cast<std::size_t>(outputs)));
        args_.output_gradient = put<BFloat16>(random.normal(outputs));
        if (data) args_.input_gradient = put<BFloat16>(x);
        args_.parameters = {put<float>(random.normal(shape.weights(), 0.05)),
                            put<float>(random.normal(shape.out_channels, 0.05))};
        args_.parameter_gradients = {put<float>(random.normal(shape.weights())),
                                     put<float>(random.normal(shape.out_channels))};
        const MemoryNeeds needs = convolution_.needs();
        args_.packed = arenas_.emplace_back(needs.packed, "the benchmark's packed weights").data();
        args_.scratch = arenas_.emplace_back(needs.scratch, "the benchmark's scratch memory").data();
        prepare();
    }
    void prepare() { convolution_.prepare(args_); }
    void forward() { convolution_.forward(args_); }
    void backward() { convolution_.backward(args_); }

private:
    template <class T>
    T* put(const reference::Floats& values) {
        HostArena& arena = arenas_.emplace_back(aligned(values.size() * sizeof(T)), "the benchmark's tensors");
        T* const to = reinterpret_cast<T*>(arena.data());
        for (std::size_t i = 0; i < values.size(); ++i) to[i] = T(values[i]);
        return to;
    }

    ops::Convolution<Host, BFloat16> convolution_;
    std::vector<HostArena> arenas_;
    BackwardArgs<Host, BFloat16> args_;
};

void compare(const char* name, int threads, int rounds, std::int64_t size, std::int64_t channels, std::int64_t kernel) {
    const WindowAxis axis = window_axis(size, kernel, 1, Padding::same);
    const ConvolutionShape shape{axis, axis, channels, channels, true};
    HostContext direct(0, {.threads = threads}), fast(0, {.threads = threads, .convolution = &winograd});
    const auto team = direct.team();
    direct.flush_denormals();
    struct Side {
        Bench data, weights;
    };
    Side sides[2] = {{{direct, shape, true, false}, {direct, shape, false, true}},
                     {{fast, shape, true, false}, {fast, shape, false, true}}};
    std::vector<double> times[2][passes.size()], ratios[passes.size()];
    for (int round = -1; round < rounds; ++round) {
        double now[2][passes.size()];
        for (std::size_t side = 0; side < 2; ++side) {
            auto& [data, weights] = sides[side];
            double(&of)[passes.size()] = now[side];
            of[0] = milliseconds_of([&] { data.forward(); });
            of[1] = milliseconds_of([&] { data.backward(); });
            of[2] = milliseconds_of([&] { weights.backward(); });
            of[3] = milliseconds_of([&] { data.prepare(); });
            of[4] = of[0] + of[1] + of[2] + of[3];
        }
        if (round < 0) continue;  // code is made, pages are touched
        for (std::size_t p = 0; p < passes.size(); ++p) {
            for (std::size_t side = 0; side < 2; ++side) times[side][p].push_back(now[side][p]);
            ratios[p].push_back(now[1][p] / now[0][p]);
        }
    }
    for (std::size_t p = 0; p < passes.size(); ++p) {
        std::printf("%-40s%-10s%12.3f%12.3f%8.3f\n", p == 0 ? name : "", passes[p], median(times[0][p]),
                    median(times[1][p]), median(ratios[p]));
    }
    std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 2;
    const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 15;
    std::printf("%-50s%12s%12s%8s\n", text("batch ", batch, ", ", threads, " threads, milliseconds").c_str(), "oneDNN",
                "option", "ratio");
    compare("conv2, 12x12, 64 -> 64, 5x5", threads, rounds, 12, 64, 5);
    compare("ResNet, 32x32, 16 -> 16, 3x3", threads, rounds, 32, 16, 3);
    compare("ResNet, 16x16, 32 -> 32, 3x3", threads, rounds, 16, 32, 3);
    compare("ResNet, 8x8, 64 -> 64, 3x3", threads, rounds, 8, 64, 3);
}
