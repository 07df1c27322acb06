// SPDX-License-Identifier: Apache-2.0
//
// The names in timm's files of EfficientNets, of which its MobileNetV2 is one.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/net/name_table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The names of a network's parts here.
struct PartsOfEfficientNet {
    /// The first convolution and its norm, the last ones, and the classifier.
    std::array<std::string_view, 5> ends{};
    /// What is before the number of a block, and the number of the first one.
    std::string_view block{};
    std::size_t number = 0;
    /// What is after it: the depthwise convolution, its norm, the last convolution and its norm of the first block,
    std::array<std::string_view, 4> first{};
    /// and of others, with those of the expansion before.
    std::array<std::string_view, 6> other{};
    /// The number of blocks with as many channels, one after another.
    std::array<std::size_t, 7> stages{};
};

[[nodiscard]] inline NameTable timm_names(const PartsOfEfficientNet& here) {
    constexpr std::array<std::string_view, 5> ends{"conv_stem", "bn1", "conv_head", "bn2", "classifier"};
    constexpr std::array<std::string_view, 4> first{"conv_dw", "bn1", "conv_pw", "bn2"};
    constexpr std::array<std::string_view, 6> other{"conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"};
    NameTable table;
    const auto add = [&](const std::string& prefix, std::span<const std::string_view> in_file, const std::string& own,
                         std::span<const std::string_view> names) {
        for (std::size_t i = 0; i < names.size(); ++i)
            table.entries.push_back({.file = {text(prefix, in_file[i], ".*")}, .here = text(own, names[i], ".*")});
    };
    add("", ends, "", here.ends);
    std::size_t number = here.number;
    for (std::size_t stage = 0; stage < here.stages.size(); ++stage) {
        for (std::size_t block = 0; block < here.stages[stage]; ++block, ++number) {
            const std::string prefix = text("blocks.", stage, '.', block, '.'), own = text(here.block, number);
            if (stage == 0) {
                add(prefix, first, own, here.first);
            } else {
                add(prefix, other, own, here.other);
            }
        }
    }
    return table;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
