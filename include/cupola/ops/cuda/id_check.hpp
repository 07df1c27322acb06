// SPDX-License-Identifier: Apache-2.0
//
// IdCheck on `Cuda`: the first id that is out of range is found like a sum, in two launches.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/id_check.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// A position, counted from the end of the largest possible array, so that the first one is the largest number; 0 for
/// none.
struct FirstPlace {
    unsigned long long from_end;

    CUPOLA_HOST_DEVICE FirstPlace& operator+=(const FirstPlace& other) {
        if (other.from_end > from_end) from_end = other.from_end;
        return *this;
    }
};

struct BadIdAt {
    const std::int32_t* ids;
    std::int64_t count;

    CUPOLA_HOST_DEVICE FirstPlace operator()(std::int64_t i, std::int64_t) const {
        return {ids[i] >= 0 && ids[i] < count ? 0ULL : ~static_cast<unsigned long long>(i)};
    }
};

struct ReportBadId {
    const std::int32_t* ids;
    std::int32_t column;
    IdReport* report;
    /// If null, only the report is written, also where all ids are in range.
    double* loss;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const FirstPlace& found) const {
        const bool bad = found.from_end != 0;
        const auto place = static_cast<std::int64_t>(~found.from_end);
        if (loss == nullptr) {
            *report = bad ? IdReport{place, ids[place], column} : IdReport{-1, 0, 0};
        } else if (bad) {
            if (report->place < 0) *report = IdReport{place, ids[place], column};
            *loss = static_cast<double>(__builtin_nanf(""));
        }
    }
};

}  // namespace impl

namespace ops {

template <>
struct IdCheck<Cuda> {
    static void queue(const CudaContext& context, const std::int32_t* ids, std::int64_t elements, std::int64_t count,
                      std::int32_t column, IdReport* report, double* loss) {
        impl::reduce<impl::FirstPlace>(context, elements, impl::BadIdAt{ids, count},
                                       impl::ReportBadId{ids, column, report, loss});
    }
    [[nodiscard]] static IdReport find(const CudaContext& context, const std::int32_t* ids, std::int64_t elements,
                                       std::int64_t count) {
        [[maybe_unused]] const auto scope = context.team();
        queue(context, ids, elements, count, 0, impl::result_of_sum<IdReport>(context), nullptr);
        return impl::read_result<IdReport>(context);
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
