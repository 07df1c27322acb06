// SPDX-License-Identifier: Apache-2.0
//
// The partition of the GPU's sum over rows, checked on the host in place of the blocks and threads of the kernel.
#include "../test.hpp"

#include <cupola/ops/impl/kernel_parts/convolution_rows.hpp>
#include <cupola/ops/impl/kernel_parts/formula_elements.hpp>

using impl::RowSlabs;

namespace {

/// Counts the visits of each element, and the threads that write each partial sum.
void walk(const RowSlabs& rows, int n, std::vector<int>& visits, std::vector<int>& writes) {
    const int columns = rows.columns(n), lanes = impl::row_sum_threads / columns;
    REQUIRE(columns * lanes == impl::row_sum_threads);
    REQUIRE((lanes & (lanes - 1)) == 0);
    for (std::int64_t slab = 0; slab < rows.slabs; ++slab) {
        for (std::int64_t block = 0; block < rows.column_blocks(n); ++block) {
            for (int thread = 0; thread < impl::row_sum_threads; ++thread) {
                const std::int64_t channel = (block * columns + thread % columns) * n;
                if (channel >= rows.channels) continue;
                for (std::int64_t row = rows.begin(slab) + thread / columns; row < rows.end(slab); row += lanes) {
                    for (int k = 0; k < n; ++k)
                        ++visits.at(static_cast<std::size_t>(row * rows.channels + channel + k));
                }
                if (thread / columns == 0) {
                    for (int k = 0; k < n; ++k)
                        ++writes.at(static_cast<std::size_t>(slab * rows.channels + channel + k));
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("the slabs' blocks visit each element once and write each partial sum once") {
    for (const std::int64_t count : {1, 31, 32, 33, 100, 1000, 16384, 16385, 20000}) {
        for (const std::int64_t channels : {1, 3, 4, 8, 24, 64, 100, 256, 260, 520}) {
            if (count * channels > 2'000'000) continue;
            for (const int n : {1, 4, 8}) {
                if (channels % n != 0) continue;
                CAPTURES(count, channels, n);
                const RowSlabs rows(count, channels);
                CHECK(rows.slabs >= 1);
                CHECK(rows.slabs <= RowSlabs::max_slabs);
                CHECK(rows.partial_bytes() == static_cast<std::size_t>(rows.slabs * channels) * 4);
                std::vector<int> visits(static_cast<std::size_t>(count * channels)),
                    writes(static_cast<std::size_t>(rows.slabs * channels));
                walk(rows, n, visits, writes);
                CHECK(visits == std::vector<int>(visits.size(), 1));
                CHECK(writes == std::vector<int>(writes.size(), 1));
            }
        }
    }
}

TEST_CASE("a gradient is widened and added to what is there, element by element") {
    using impl::InPacks;
    alignas(16) BFloat16 from[11];
    alignas(16) float to[12];
    for (int i = 0; i < 11; ++i) {
        from[i] = BFloat16(static_cast<float>(i) - 4.5F);
        to[i] = 100.0F;
    }
    to[11] = -7.0F;  // behind the last element
    const InPacks<8, impl::ElementsAt<impl::AddElement, float, const BFloat16>> add{11, {{}, {{to}, {from}}}};
    for (std::int64_t i = 0; i < add.size(); ++i) add(i);
    for (int i = 0; i < 11; ++i) CHECK(to[i] == 100.0F + static_cast<float>(i) - 4.5F);
    CHECK(to[11] == -7.0F);
}
