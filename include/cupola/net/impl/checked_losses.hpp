// SPDX-License-Identifier: Apache-2.0
//
// The losses of a check of a whole network: the operation of each, with targets of its own, and the regularisers that
// the check adds.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/net/impl/network_bench.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The data term of a loss. A loss without a member `data` is the data term itself.
template <class Loss>
[[nodiscard]] const auto& data_loss(const Loss& loss) {
    if constexpr (requires { loss.data; }) {
        return loss.data;
    } else {
        return loss;
    }
}

/// coefficient / 2 times the sum of squares from `offset`.
struct CheckedDecay {
    std::int64_t offset = 0, size = 0;
    double coefficient = 0;
};

template <class Loss>
[[nodiscard]] std::vector<CheckedDecay> decays_of(std::span<const LayerInfo> layers) {
    std::vector<CheckedDecay> result;
    if constexpr (requires { Loss::regularized(layers); }) {
        for (const auto& part : Loss::regularized(layers)) result.push_back({part.offset, part.size, part.coefficient});
    }
    return result;
}

/// Targets for a network of this output: every class of its channels in turn, or numbers in (0, 1), which suit
/// probabilities too.
template <class Target>
[[nodiscard]] std::vector<Target> check_targets(const Shape& output, const Shape& target,
                                                const GradientCheckOptions& options) {
    std::vector<Target> targets(static_cast<std::size_t>(options.batch * target.size()));
    if constexpr (std::same_as<Target, float>) {
        constexpr std::uint32_t stream = 63;
        targets = check_normal(options.seed, stream, static_cast<std::int64_t>(targets.size()));
        for (float& value : targets) value = 1.0F / (1.0F + std::exp(-value));
    } else {
        for (std::size_t n = 0; n < targets.size(); ++n)
            targets[n] = static_cast<Target>(static_cast<std::int64_t>(n) % output.channels());
    }
    return targets;
}

/// The losses of a network with these outputs, each with targets of its own. Throws InvalidArgument unless there is one
/// for each output.
template <class D, class Data>
[[nodiscard]] std::vector<CheckedLoss<D>> checked_losses(const Data& data, std::span<const NetworkOutput> outputs,
                                                         const GradientCheckOptions& options,
                                                         typename D::Context& context) {
    std::vector<CheckedLoss<D>> result;
    const auto add = [&]<class Loss>(std::string_view name, double factor, const Loss& loss) {
        using Target = typename Loss::Target;
        const std::size_t k = name.empty() ? outputs.size() - 1 : output_of_name(outputs, name);
        const Shape& output = outputs[k].shape;
        const std::vector<Target> values = check_targets<Target>(output, Loss::target(output), options);
        const auto targets =
            std::make_shared<typename D::Arena>(values.size() * sizeof(Target), "a check of gradients");
        D::copy_from_host(context, targets->data(), reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(Target));
        result.push_back({k, factor, output.size(),
                          [operation = loss_operation<D>(loss, output), targets](
                              typename D::Context& on, const float* from, std::int64_t batch, float* gradient) mutable {
                              return operation.forward(on, from, reinterpret_cast<const Target*>(targets->data()),
                                                       batch, gradient);
                          }});
    };
    if constexpr (requires { Data::lists_losses; }) {
        data.for_each_loss(add);
    } else {
        add({}, 1, data);
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
        const auto found =
            std::count_if(result.begin(), result.end(), [&](const auto& each) { return each.output == k; });
        require(found == 1, "a check of gradients needs one loss per output, and the output ", outputs[k].name, " has ",
                found);
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
