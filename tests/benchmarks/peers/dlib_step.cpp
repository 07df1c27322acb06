// SPDX-License-Identifier: Apache-2.0
//
// The training step of the tutorial's network without its local response normalisation, which dlib has not, in dlib
// with OpenBLAS; it talks to turns.py as protocol.py does. Batches are tensors already. OPENBLAS_NUM_THREADS says how
// many threads it has: the rest of dlib's step has one.
//
//   dlib_step plain float BATCH THREADS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <dlib/dnn.h>
#include <dlib/revision.h>

namespace {

using image = std::array<dlib::matrix<float>, 3>;

template <typename below>
using pool = dlib::add_layer<dlib::max_pool_<3, 3, 2, 2, 1, 1>, below>;

// clang-format off
using network = dlib::loss_multiclass_log<dlib::fc<
    10, dlib::relu<dlib::fc<192, dlib::relu<dlib::fc<384,
    pool<dlib::relu<dlib::con<64, 5, 5, 1, 1,
    pool<dlib::relu<dlib::con<64, 5, 5, 1, 1, dlib::input<image>>>>>>>>>>>>>;
// clang-format on

constexpr std::size_t batch_count = 4;

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5 || std::string(argv[1]) != "plain" || std::string(argv[2]) != "float") {
        std::fprintf(stderr, "usage: dlib_step plain float BATCH THREADS\n");
        return 2;
    }
    const long batch = std::atol(argv[3]);
    network net;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<dlib::resizable_tensor> batches(batch_count);
    std::vector<std::vector<unsigned long>> labels(batch_count);
    for (std::size_t i = 0; i < batch_count; ++i) {
        std::vector<image> images(static_cast<std::size_t>(batch));
        for (image& one : images) {
            for (auto& channel : one) {
                channel.set_size(24, 24);
                for (float& value : channel) value = normal(random);
            }
        }
        net.to_tensor(images.begin(), images.end(), batches[i]);
        for (long k = 0; k < batch; ++k) labels[i].push_back(random() % 10);
    }
    std::vector<dlib::sgd> solvers(net.num_computational_layers, dlib::sgd(0.004F, 0.0F));
    std::size_t done = 0;
    const auto step = [&] {
        const std::size_t i = done++ % batch_count;
        const double loss = net.compute_parameter_gradients(batches[i], labels[i].begin());
        net.update_parameters(dlib::make_sstack(solvers), 0.01);
        return loss;
    };
    const char* const warm_up = std::getenv("WARM_UP");
    for (int i = warm_up != nullptr ? std::atoi(warm_up) : 5; i > 0; --i) step();
    std::printf("{\"name\": \"dlib\", \"version\": \"%d.%d.%d\", \"how\": \"OpenBLAS\"}\n", DLIB_MAJOR_VERSION,
                DLIB_MINOR_VERSION, DLIB_PATCH_VERSION);
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        double loss = 0;
        std::printf("{\"seconds\": [");
        const int steps = std::atoi(line);
        for (int i = 0; i < steps; ++i) {
            const auto start = std::chrono::steady_clock::now();
            loss = step();
            std::printf("%s%.7f", i == 0 ? "" : ", ",
                        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        std::printf("], \"loss\": %.6f}\n", loss);
        std::fflush(stdout);
    }
}
