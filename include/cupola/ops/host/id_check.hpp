// SPDX-License-Identifier: Apache-2.0
//
// IdCheck on `Host`: complete when it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/finite.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/tensor/ids.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct IdCheck<Host> {
    static void queue(const HostContext& context, const std::int32_t* ids, std::int64_t elements, std::int64_t count,
                      std::int32_t column, IdReport* report, double* loss) {
        const IdReport found = find(context, ids, elements, count);
        if (found.place < 0) return;
        if (report->place < 0) *report = {.place = found.place, .id = found.id, .column = column};
        *loss = impl::not_a_number<double>();
    }
    [[nodiscard]] static IdReport find(const HostContext&, const std::int32_t* ids, std::int64_t elements,
                                       std::int64_t count) {
        const std::int64_t place = first_bad_id({ids, static_cast<std::size_t>(elements)}, count);
        return place < 0 ? impl::no_bad_id : IdReport{.place = place, .id = ids[place], .column = 0};
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
