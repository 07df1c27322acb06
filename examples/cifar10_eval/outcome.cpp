// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <span>

#include <cupola/io/atomic_file.hpp>
#include <cupola/io/standard_output.hpp>

#include "evaluation.hpp"

namespace cifar10 {

namespace {

/// The local time in the tutorial's format.
std::string local_time() {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    std::tm local{};
    localtime_r(&now.tv_sec, &local);
    char date[32], result[64];
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
    std::snprintf(result, sizeof result, "%s.%06ld", date, now.tv_nsec / 1000);
    return result;
}

std::string padded(const std::string& cell, std::size_t width) {
    return std::string(width - std::min(width, cell.size()), ' ') + cell;
}

}  // namespace

Outcome count_correct(const Logits& logits, const ImageSet& images, bool tutorial_count) {
    constexpr std::int64_t tutorial_batch = 128;
    Outcome outcome;
    const std::int64_t size = images.size();
    outcome.counted = tutorial_count ? (size + tutorial_batch - 1) / tutorial_batch * tutorial_batch : size;
    outcome.predictions.reserve(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
        const auto row =
            std::span(logits.values)
                .subspan(static_cast<std::size_t>(i * logits.classes), static_cast<std::size_t>(logits.classes));
        require<DataError>(std::ranges::all_of(row, [](float logit) { return std::isfinite(logit); }),
                           "the logits of image ", i, " of ", images.name(),
                           " are not finite: the training has diverged");
        const auto prediction = static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
        outcome.predictions.push_back(prediction);
        const std::int64_t times = (outcome.counted - i + size - 1) / size;
        if (prediction == images.label(i)) outcome.correct += times;
    }
    return outcome;
}

std::vector<std::string> class_names(const ImageSet& images, std::int64_t classes) {
    std::vector<std::string> names = images.classes();
    while (static_cast<std::int64_t>(names.size()) < classes) names.push_back(text("class ", names.size()));
    return names;
}

Confusion confusion_of(const Outcome& outcome, const ImageSet& images, std::int64_t classes) {
    Confusion confusion(static_cast<std::size_t>(classes),
                        std::vector<std::int64_t>(static_cast<std::size_t>(classes)));
    for (std::int64_t i = 0; i < images.size(); ++i) {
        const std::int32_t prediction = outcome.predictions[static_cast<std::size_t>(i)];
        ++confusion[static_cast<std::size_t>(images.label(i))][static_cast<std::size_t>(prediction)];
    }
    return confusion;
}

std::string confusion_table(const Confusion& confusion, const std::vector<std::string>& names) {
    const std::string corner = "label \\ prediction";
    std::size_t first = corner.size();
    for (const std::string& name : names) first = std::max(first, name.size());
    std::string table = corner + std::string(first - corner.size(), ' ');
    for (const std::string& name : names) table += "  " + padded(name, 5);
    table += "  correct\n";
    for (std::size_t label = 0; label < confusion.size(); ++label) {
        std::int64_t images = 0;
        std::string line = names[label] + std::string(first - names[label].size(), ' ');
        for (std::size_t c = 0; c < confusion.size(); ++c) {
            images += confusion[label][c];
            line += "  " + padded(text(confusion[label][c]), std::max<std::size_t>(5, names[c].size()));
        }
        if (images == 0) continue;  // the data set has no images of this class
        const double fraction = static_cast<double>(confusion[label][label]) / static_cast<double>(images);
        table += line + "  " + padded(text(Decimals{fraction, 3}), 7) + '\n';
    }
    return table;
}

void write_predictions(const std::string& path, const Outcome& outcome, const Logits& logits, const ImageSet& images) {
    std::string lines = "index,label,prediction";
    for (std::int64_t c = 0; c < logits.classes; ++c) lines += text(",logit", c);
    lines += '\n';
    for (std::int64_t i = 0; i < images.size(); ++i) {
        lines += text(i, ',', images.label(i), ',', outcome.predictions[static_cast<std::size_t>(i)]);
        for (std::int64_t c = 0; c < logits.classes; ++c) {
            const float logit = logits.values[static_cast<std::size_t>(i * logits.classes + c)];
            lines += text(',', SignificantDigits{static_cast<double>(logit), 9});  // nine restore the float exactly
        }
        lines += '\n';
    }
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(lines)));
    file.commit();
}

std::string lines_of(const Outcome& outcome, const ImageSet& images) {
    return text(local_time(), ": precision @ 1 = ", Decimals{outcome.precision(), 3}, "\nstep ", outcome.step, ": ",
                outcome.correct, " of ", outcome.counted, " images correct, ", to_string(outcome.weights), " of ",
                outcome.checkpoint, ", data ", images.name(), '\n');
}

std::string json_of(const Outcome& outcome, const ImageSet& images, const Confusion& confusion) {
    std::string json =
        text(R"({"time":)", json_string(local_time()), R"(,"step":)", outcome.step, R"(,"precision":)",
             Decimals{outcome.precision(), 6}, R"(,"correct":)", outcome.correct, R"(,"images":)", outcome.counted,
             R"(,"weights":)", json_string(to_string(outcome.weights)), R"(,"checkpoint":)",
             json_string(outcome.checkpoint), R"(,"data":)", json_string(images.name()));
    if (!confusion.empty()) {
        json += R"(,"confusion":[)";
        for (const auto& row : confusion) {
            json += &row == &confusion.front() ? "[" : ",[";
            for (const std::int64_t& count : row) json += text(&count == &row.front() ? "" : ",", count);
            json += ']';
        }
        json += ']';
    }
    return json + "}\n";
}

}  // namespace cifar10
