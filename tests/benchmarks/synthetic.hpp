// SPDX-License-Identifier: Apache-2.0
//
// Synthetic batches in memory, the same for every placement of the replicas.
#pragma once

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "../standard.hpp"

namespace benchmarks {

using namespace cupola;

// Four global batches in turn, as the peers have. Values are uniform with a variance of one, which costs the start
// least.
inline constexpr std::size_t batch_count = 4;

struct Synthetic {
    std::vector<float> samples;
    std::vector<std::int32_t> labels;
    Shape shape;
    std::size_t batch, replicas, sample;

    Synthetic(std::int64_t samples_per_replica, int replica_count, const Shape& sample_shape)
        : shape(sample_shape),
          batch(static_cast<std::size_t>(samples_per_replica)),
          replicas(static_cast<std::size_t>(replica_count)),
          sample(static_cast<std::size_t>(sample_shape.size())) {
        const std::size_t count = batch_count * batch * replicas;
        samples.resize(count * sample);
        for (std::size_t i = 0; i < samples.size(); i += 4) {
            const auto words = RandomStream(1, RngDomain::user, 0, i).words(0);
            for (std::size_t k = 0; k < 4 && i + k < samples.size(); ++k)
                samples[i + k] = (uniform(words[k]) - 0.5F) * 3.4641F;
        }
        for (std::size_t i = 0; i < count; ++i) {
            labels.push_back(
                static_cast<std::int32_t>(uniform_below(RandomStream(1, RngDomain::user, 1, i).words(0)[0], 10)));
        }
    }

    BatchView operator()(std::int64_t step, int replica, HostContext&) const {
        const std::size_t first =
            (static_cast<std::size_t>(step) % batch_count * replicas + static_cast<std::size_t>(replica)) * batch;
        return {samples.data() + first * sample, labels.data() + first, static_cast<std::int64_t>(batch), shape};
    }
};

}  // namespace benchmarks
