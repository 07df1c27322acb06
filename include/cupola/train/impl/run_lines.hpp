// SPDX-License-Identifier: Apache-2.0
//
// The messages of a run other than its log: the device of each operation, lost processes, the cost of the summaries,
// the final result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/train/loss_text.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A line per layer, with the device of each replica that runs it, "host:0"; one for the averaging and one for the
/// update. `cut` is null for a network that is not cut.
[[nodiscard, gnu::cold]] inline std::string placement_lines(std::span<const LayerInfo> layers, int replicas,
                                                            int devices, std::string_view place,
                                                            std::string_view averaging, std::string_view updated,
                                                            const CutInfo* cut = nullptr) {
    std::string lines;
    const int of_group = cut == nullptr ? 1 : static_cast<int>(cut->devices), groups = devices / of_group;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        const int in_group = cut == nullptr ? 0 : static_cast<int>(cut->device_of(cut->part_of(i), cut->parts()));
        std::string where;
        for (int r = 0; r < replicas; ++r) {
            // The first device, or group, has the first replicas, as in DataParallel.
            int group = 0;
            while (static_cast<std::int64_t>(replicas) * (group + 1) / groups <= r) ++group;
            where += text(r == 0 ? "" : ", ", "replica ", r, " on ", place, ":", group * of_group + in_group);
        }
        if (!layer.traits.runs_on.empty()) where = text(layer.traits.runs_on, ", by name");
        lines += text("placement: ", layer.name, layer.name.empty() ? "" : " ", layer.type, ": ", where, '\n');
    }
    return text(lines, "placement: averaging: ", averaging, "\nplacement: update: ", updated);
}

/// "after 530 steps": the number in the names of checkpoints and in the lines of records. The last of these steps is
/// step 529.
[[nodiscard, gnu::cold]] inline std::string after_steps(std::int64_t made) {
    return text("after ", made, made == 1 ? " step" : " steps");
}

/// "summaries took 0.43 % of the training's 75.2 s".
[[nodiscard, gnu::cold]] inline std::string cost_of_summaries(double seconds, double all) {
    return text("summaries took ", Decimals{100 * seconds / all, 2}, " % of the training's ", Decimals{all, 1}, " s");
}

/// The losses of a network with several outputs: ": kind 0.12 (accuracy 0.987), box 0.34", or the same as a part of a
/// JSON object.
[[nodiscard, gnu::cold]] inline std::string losses_of_outputs(bool json, const Evaluation& result) {
    std::string line;
    if (result.losses.size() < 2) return line;
    for (const OutputEvaluation& each : result.losses) {
        std::string shown;
        if (each.predictions > 0)
            shown = json ? text(R"(,"precision":)", Decimals{each.accuracy(), 6})
                         : text(" (accuracy ", Decimals{each.accuracy(), 3}, ')');
        const bool first = line.empty();
        line += json ? text(first ? R"("outputs":{)" : ",", json_string(each.name), R"(:{"loss":)",
                            exact_text(each.loss), shown, '}')
                     : text(first ? ": " : ", ", each.name, ' ', loss_text(each.loss), shown);
    }
    return json ? line + "}," : line;
}

/// "test accuracy = 0.539 (1000 images)", or "test loss = 0.123 (1000 images)" if the loss counts no predictions or
/// there are several losses; or a JSON object, which for an accuracy has the keys of cifar10_eval --json. Throws
/// DataError if the loss is not finite.
[[nodiscard, gnu::cold]] inline std::string result_line(bool json, std::int64_t step, const Evaluation& result,
                                                        Weights weights, std::string_view samples) {
    // No later step checks the parameters after the last update.
    require<DataError>(is_finite(result.loss), "the loss on the test ", samples, " is ", result.loss, ", with ",
                       to_string(weights), ": the training has diverged");
    const std::string_view averages = weights == Weights::averages ? " with moving averages" : "";
    if (!result.has_accuracy()) {
        const std::string outputs = losses_of_outputs(json, result);
        return json ? text(R"({"loss":)", exact_text(result.loss), ',', outputs, R"("step":)", step, R"(,")", samples,
                           R"(":)", result.samples, R"(,"weights":")", to_string(weights), "\"}")
                    : text("test loss", averages, " = ", loss_text(result.loss), " (", result.samples, ' ', samples,
                           ')', outputs);
    }
    const std::string digits = text(Decimals{result.accuracy(), json ? 6 : 3});
    return json ? text(R"({"precision":)", digits, R"(,"step":)", step, R"(,"correct":)", result.correct, R"(,")",
                       samples, R"(":)", result.samples, R"(,"weights":")", to_string(weights), "\"}")
                : text("test accuracy", averages, " = ", digits, " (", result.samples, ' ', samples, ')');
}

}}}  // namespace cupola::CUPOLA_ABI::impl
