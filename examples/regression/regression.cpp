// SPDX-License-Identifier: Apache-2.0
//
// Regression of a noisy function, y = sin 2x + x / 2, by 400 points: until the loss on 100 others was not smaller in
// five validations; the smallest's state is restored. FILE.svg shows points, function (dashed) and what was learnt.
// Prints the loss every 500 steps and 20 epochs; at the end R squared and the deviation from the function itself.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/layers/silu.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/metrics.hpp>
#include <cupola/parallel/state_transfer.hpp>

using namespace cupola;

struct Curve : Sequential<Input<1>, Linear<32>, SiLU, Linear<32>, SiLU, Linear<1>> {};

float function(float x) { return std::sin(2 * x) + x / 2; }

struct Points {
    std::vector<float> x, y;
    Points(std::uint64_t seed, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto words = RandomStream(seed, RngDomain::user, 0, i).words(0);
            x.push_back(6 * uniform(words[0]) - 3);
            // The sum of three uniform numbers is nearly normal, with a standard deviation of 1/2.
            y.push_back(function(x[i]) + 0.4F * (uniform(words[1]) + uniform(words[2]) + uniform(words[3]) - 1.5F));
        }
    }
};

void plot(const std::string& path, const Points& points, const std::vector<float>& x, const std::vector<float>& y) {
    const auto across = [](float of) { return 100 * (of + 3); };  // x and y from -3 to 3, in a picture of 600 x 400
    const auto down = [](float of) { return 200 - 200 * of / 3; };
    std::string svg = "<svg xmlns='http://www.w3.org/2000/svg' width='600' height='400' style='background:white'>\n",
                expected, learnt;
    for (std::size_t i = 0; i < points.x.size(); ++i)
        svg += text("<circle cx='", across(points.x[i]), "' cy='", down(points.y[i]), "' r='2' fill='silver'/>\n");
    for (std::size_t i = 0; i < x.size(); ++i) {
        expected += text(across(x[i]), ',', down(function(x[i])), ' ');
        learnt += text(across(x[i]), ',', down(y[i]), ' ');
    }
    svg += text("<polyline points='", expected, "' fill='none' stroke='black' stroke-dasharray='6'/>\n");
    svg += text("<polyline points='", learnt, "' fill='none' stroke='crimson' stroke-width='2'/>\n</svg>\n");
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(svg)));
    file.commit();
}

int main(int argc, char** argv) try {
    require(argc == 2 && *argv[1] != '-', "usage: regression FILE.svg");
    const Points points(1, 400), others(2, 100);
    const InMemory data({1}, points.x, {1}, points.y), other({1}, others.x, {1}, others.y);
    InMemoryBatches batches(data, {.batch_size = 40, .seed = 1});
    EvaluationBatches validation(other, IdentityTransform{}, 40);
    DataParallel<Curve, MeanSquaredError, Adam, ConcatMean, Host> training(
        {.batch_size = 40, .evaluation_batch_size = 301, .optimizer = {.learning_rate = cosine(0.02, 3000)}});
    const FitOptions<decltype(training)> options{.epochs = 300,
                                                 .every = 20,
                                                 .validation = validation,
                                                 .metrics = {metrics::RSquared{}},
                                                 .patience = 5,
                                                 .restore_best = true};
    const History history = fit(training, batches, options, LogEvery{500});
    std::vector<float> x;
    for (int i = 0; i <= 300; ++i) x.push_back(0.02F * static_cast<float>(i) - 3);
    const std::vector<float> learnt = training.predict({x.data(), 301});
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) squares += std::pow(double(learnt[i] - function(x[i])), 2);
    std::printf("after step %lld: R squared = %.3f, deviation = %.3f\n", static_cast<long long>(training.step()),
                history.records[*history.best].metric("r_squared"), std::sqrt(squares / 301));
    plot(argv[1], points, x, learnt);
} catch (const Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
