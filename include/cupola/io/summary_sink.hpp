// SPDX-License-Identifier: Apache-2.0
//
// The values of a step under tags, and the interface that receives them. EventFile (io/event_file.hpp) writes it for
// TensorBoard; your own sink derives from SummarySink.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cupola/io/histogram.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Eight bits per channel, row by row, channels last: 1 channel is grey, 3 are red, green and blue.
struct PixelImage {
    std::int64_t height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
};

template <class Value>
struct Tagged {
    std::string tag;
    Value value;
};

/// The values of one step.
struct StepSummary {
    std::vector<Tagged<double>> scalars;
    std::vector<Tagged<Histogram>> histograms;
    std::vector<Tagged<PixelImage>> images;
    /// Markdown.
    std::vector<Tagged<std::string>> texts;

    [[nodiscard]] bool empty() const {
        return scalars.empty() && histograms.empty() && images.empty() && texts.empty();
    }
    void clear() {
        scalars.clear();
        histograms.clear();
        images.clear();
        texts.clear();
    }
};

class SummarySink {
public:
    virtual ~SummarySink() = default;
    /// A run begins at `step`, or continues there: values written for this step and later ones are no longer valid.
    virtual void start(std::int64_t step) = 0;
    /// The values are stored when it returns, also if the process ends then. Throws DataError if they could not be
    /// stored.
    virtual void write(std::int64_t step, const StepSummary& summary) = 0;

protected:
    SummarySink() = default;
    SummarySink(const SummarySink&) = default;
    SummarySink& operator=(const SummarySink&) = default;
};

}}  // namespace cupola::CUPOLA_ABI
