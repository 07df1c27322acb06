// SPDX-License-Identifier: Apache-2.0
//
// What is to be shown of a step, as values under tags, and where it goes. EventFile (io/event_file.hpp) writes it for
// TensorBoard; a sink of your own derives from SummarySink.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cupola/io/histogram.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Eight bits a channel, row by row, channels last: 1 channel is grey, 3 are red, green and blue.
struct PixelImage {
    std::int64_t height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
};

template <class Value>
struct Tagged {
    std::string tag;
    Value value;
};

/// What is shown of one step.
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
    /// A run begins at `step`, or continues there: what was written of this step and of later ones no longer holds.
    virtual void start(std::int64_t step) = 0;
    /// What it is given is kept when it returns, whatever happens to the process then. Throws DataError if it is not.
    virtual void write(std::int64_t step, const StepSummary& summary) = 0;

protected:
    SummarySink() = default;
    SummarySink(const SummarySink&) = default;
    SummarySink& operator=(const SummarySink&) = default;
};

}  // namespace cupola::inline CUPOLA_ABI
