// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/id_check.hpp, cupola/ops/host/id_check.hpp, cupola/ops/id_check.hpp
//
// The first id of a batch that is out of range is found, and makes a loss NaN.
#include "../test.hpp"

#include <cupola/ops/id_check.hpp>

#include "../devices.hpp"

namespace {

template <class V, class D>
class Copied {
public:
    Copied(typename D::Context& context, const std::vector<V>& values)
        : context_(context), count_(values.size()), arena_(values.size() * sizeof(V), "a test") {
        D::copy_from_host(context, arena_.data(), reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(V));
    }
    [[nodiscard]] V* data() { return reinterpret_cast<V*>(arena_.data()); }
    [[nodiscard]] V first() {
        V value;
        D::copy_to_host(context_, reinterpret_cast<std::byte*>(&value), arena_.data(), sizeof value);
        return value;
    }

private:
    typename D::Context& context_;
    std::size_t count_;
    typename D::Arena arena_;
};

}  // namespace

TYPED_TEST_CASE("the first id that is out of range is found on the device, and makes the loss NaN", D, Devices) {
    typename D::Context context(0, device_options<D>(2));
    [[maybe_unused]] const auto team = context.team();
    for (const std::size_t count : {std::size_t{1}, std::size_t{70}, std::size_t{5000}}) {
        std::vector<std::int32_t> ids(count);
        for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i % 9);
        const auto elements = static_cast<std::int64_t>(count);
        Copied<std::int32_t, D> good(context, ids);
        const IdReport none = ops::IdCheck<D>::find(context, good.data(), elements, 9);
        CHECK(none.place == -1);
        const std::size_t at = count / 3;
        ids[at] = 9;
        ids[count - 1] = count == 1 ? 9 : -1;
        Copied<std::int32_t, D> bad(context, ids);
        const IdReport found = ops::IdCheck<D>::find(context, bad.data(), elements, 9);
        CHECK(found.place == static_cast<std::int64_t>(at));
        CHECK(found.id == 9);

        Copied<IdReport, D> report(context, {impl::no_bad_id});
        Copied<double, D> loss(context, {2.5});
        ops::IdCheck<D>::queue(context, good.data(), elements, 9, 3, report.data(), loss.data());
        CHECK(report.first().place == -1);
        CHECK(loss.first() == 2.5);
        ops::IdCheck<D>::queue(context, bad.data(), elements, 9, 4, report.data(), loss.data());
        CHECK(report.first().place == static_cast<std::int64_t>(at));
        CHECK(report.first().id == 9);
        CHECK(report.first().column == 4);
        CHECK(std::isnan(loss.first()));
        // The first column that has one is reported.
        ops::IdCheck<D>::queue(context, bad.data(), elements, 1, 5, report.data(), loss.data());
        CHECK(report.first().column == 4);
    }
}
