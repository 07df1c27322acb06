// SPDX-License-Identifier: Apache-2.0
//
// Lesson 3: a user-defined layer, Softsign: y = x / (1 + |x|), with its backward pass, checked against finite
// differences and then used in a network that learns whether a point is in a ring.
// Prints the report of the check, the loss every 200 steps, and the accuracy at the end.
#include <cmath>
#include <cstdio>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/check_gradients.hpp>

using namespace cupola;

struct SoftsignOnHost {
    std::int64_t count;  // the elements of a batch

    void forward(const ForwardArgs<Host>& args) const {
        parallel_for(args.context, count,
                     [&](std::int64_t i) { args.output[i] = args.input[i] / (1 + std::abs(args.input[i])); });
    }
    void backward(const BackwardArgs<Host>& args) const {  // the derivative is (1 - |y|)^2
        if (args.input_gradient == nullptr) return;
        parallel_for(args.context, count, [&](std::int64_t i) {
            const float left = 1 - std::abs(args.output[i]);
            args.input_gradient[i] = args.output_gradient[i] * left * left;
        });
    }
};

struct Softsign {
    static constexpr LayerTraits traits{.backward_reads_input = false};
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static SoftsignOnHost operation(const BuildContext<Host>& build) { return {build.batch * build.output.size()}; }
};

struct Rings : Sequential<Input<2>, Linear<24>, Softsign, Linear<24>, Softsign, Linear<2>> {};

int main() try {
    std::printf("%s\n", check_gradients<Softsign, Host>({8}).report().c_str());
    std::vector<float> points;
    std::vector<std::int32_t> inside;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const auto words = RandomStream(7, RngDomain::user, 0, i).words(0);
        const float x = 2 * uniform(words[0]) - 1, y = 2 * uniform(words[1]) - 1, radius = std::hypot(x, y);
        points.insert(points.end(), {x, y});
        inside.push_back(radius > 0.4F && radius < 0.8F ? 1 : 0);
    }
    const InMemory data(Rings::input_shape, points, inside, 2);
    DataParallel<Rings, CrossEntropy<2>, Adam, ConcatMean, Host> training(
        {.batch_size = 50, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    InMemoryBatches batches(data, {.batch_size = 50, .seed = 1});
    fit(training, batches, {.steps = 800}, LogEvery{200});
    EvaluationBatches test(data, IdentityTransform{}, 50);
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
} catch (const Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
