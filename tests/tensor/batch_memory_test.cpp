// SPDX-License-Identifier: Apache-2.0
//
// The columns of a batch in one piece of memory do not overlap, and each begins at an aligned address.
#include <cupola/tensor/batch_memory.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

TEST_CASE("the columns of a batch lie one after another, each aligned") {
    const Columns columns{{"input", ElementType::float32, {3}},
                          {"mask", ElementType::uint8, {5, 2}},
                          {"target", ElementType::int32, {1}}};
    for (const std::int64_t size : {1, 7, 64}) {
        alignas(alignment) static std::byte memory[8192];
        const BatchSpan batch = batch_in(memory, columns, size);
        const std::byte* end = memory;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            CHECK(batch.data(i) >= end);
            CHECK((batch.data(i) - memory) % static_cast<std::ptrdiff_t>(alignment) == 0);
            end = batch.at(i, size);
        }
        CHECK(end <= memory + batch_bytes(columns, size));
        CHECK(batch_bytes(columns, size) % alignment == 0);
        CHECK(batch.inputs() == reinterpret_cast<float*>(memory));
    }
    CHECK(batch_bytes(columns, 1) == 3 * alignment);
    CHECK(batch_bytes(columns, 0) == 0);
    CHECK(batch_bytes({}, 9) == 0);
    CHECK(message_of<OutOfMemory>([] {
              static_cast<void>(batch_bytes({{"input", ElementType::float32, {1LL << 31}}}, std::int64_t{1} << 31));
          }) == "the column input of a batch of 2147483648 samples needs 18446744073.7 GB, more than any computer has");
}
