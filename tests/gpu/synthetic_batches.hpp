// SPDX-License-Identifier: Apache-2.0
//
// Batches for the tutorial's network that are in the memory of a GPU from the start: uniform numbers with a variance of one,
// and arbitrary labels.
#pragma once

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "../standard.hpp"

namespace gpu_tests {

/// Each replica uses the same few batches in turn, shifted by one from replica to replica.
class SyntheticBatches {
public:
    explicit SyntheticBatches(std::int64_t batch)
        : batch_(batch),
          samples_(static_cast<std::size_t>(turns * batch * features) * sizeof(float), "the synthetic samples"),
          labels_(static_cast<std::size_t>(turns * batch) * sizeof(std::int32_t), "their labels") {
        using namespace cupola;
        std::vector<float> values(static_cast<std::size_t>(turns * batch * features));
        for (std::size_t i = 0; i < values.size(); i += 4) {
            const auto words = RandomStream(1, RngDomain::user, 0, i).words(0);
            for (std::size_t k = 0; k < 4 && i + k < values.size(); ++k)
                values[i + k] = (uniform(words[k]) - 0.5F) * 3.4641F;
        }
        std::vector<std::int32_t> classes(static_cast<std::size_t>(turns * batch));
        for (std::size_t i = 0; i < classes.size(); ++i) {
            classes[i] =
                static_cast<std::int32_t>(uniform_below(RandomStream(1, RngDomain::user, 1, i).words(0)[0], 10));
        }
        copy(samples_, values.data(), values.size() * sizeof(float));
        copy(labels_, classes.data(), classes.size() * sizeof(std::int32_t));
    }

    [[nodiscard]] cupola::BatchView operator()(std::int64_t step, int replica, cupola::CudaContext&) const {
        const std::int64_t first = (step + replica) % turns * batch_;
        return {reinterpret_cast<const float*>(samples_.data()) + first * features,
                reinterpret_cast<const std::int32_t*>(labels_.data()) + first, batch_, cupola::Cifar10Net::input_shape};
    }

private:
    static constexpr std::int64_t turns = 4, features = cupola::Cifar10Net::input_shape.size();

    static void copy(cupola::CudaArena& to, const void* from, std::size_t bytes) {
        cupola::impl::check_cuda(cudaMemcpy(to.data(), from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    }

    std::int64_t batch_;
    cupola::CudaArena samples_, labels_;
};

}  // namespace gpu_tests
