// SPDX-License-Identifier: Apache-2.0
//
// A predictor allocates nothing after its construction, from the first call on and in any thread. Where there is no
// AVX-512 this holds for Cupola alone: oneDNN makes the code of some products when they are first computed.
#include <cupola/predict.hpp>

#include "../test.hpp"

#include <barrier>

#include "counting.hpp"
#include "tutorial.hpp"

TEST_CASE("predicting allocates nothing, for any size of batch and from several threads") {
    Checkpoint checkpoint;
    checkpoint.state.parameters = impl::initial_parameters(tutorial::Net::layers, 1, {});
    const Predictor<tutorial::Net> predictor(checkpoint, "x", {.max_batch = 16, .streams = 2});
    const std::vector<float> samples(16 * static_cast<std::size_t>(tutorial::Net::input_shape.size()), 0.5F);
    std::vector<std::vector<float>> outputs(4, std::vector<float>(160));
    const bool avx512 = Host::library_isa().starts_with("avx512");
    // Allocations of libstdc++ for oneDNN would then count as ours.
    if (!avx512) predictor.predict(std::span(samples).first(7 * samples.size() / 16), std::span(outputs[0]).first(70));
    if (!avx512) predictor.predict(samples, outputs[0]);
    std::barrier edge(5);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            edge.arrive_and_wait();
            for (std::size_t count = 1; count <= 16; ++count) {
                predictor.predict(std::span(samples).first(count * samples.size() / 16),
                                  std::span(outputs[t]).first(10 * count));
            }
            edge.arrive_and_wait();
        });
    }
    start_counting();
    edge.arrive_and_wait();
    edge.arrive_and_wait();
    const AllocationCount count = stop_counting();
    for (std::thread& thread : threads) thread.join();
    CHECK(count.ours == 0);
#if defined(__clang__)
    constexpr std::size_t team_of_a_thread = 4192;  // which LLVM's OpenMP makes at a thread's first parallel region
#else
    constexpr std::size_t team_of_a_thread = 0;
#endif
    constexpr std::size_t most = std::max<std::size_t>(4096, team_of_a_thread);
    if (avx512) CHECK(count.others_largest <= most);
    CHECK(outputs[0] == outputs[3]);
}
