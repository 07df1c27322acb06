// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/scratch.hpp>

#include <optional>
#include <thread>

#include "../../test.hpp"

TEST_CASE("memory is kept for the next sample of the thread, and what is in use at once is apart") {
    const int* outer_memory = nullptr;
    const int* inner_memory = nullptr;
    for (int sample = 0; sample < 3; ++sample) {
        impl::Scratch<int> outer(100);
        impl::Scratch<int> inner(50);
        CHECK((outer.size() == 100 && inner.size() == 50 && inner.end() - inner.begin() == 50));
        CHECK(outer.data() != inner.data());
        if (sample > 0) CHECK((outer.data() == outer_memory && inner.data() == inner_memory));
        outer_memory = outer.data();
        inner_memory = inner.data();
    }
    std::thread([&] { CHECK(impl::Scratch<int>(100).data() != outer_memory); }).join();
    impl::Scratch<int> first(60), moved(std::move(first));
    CHECK((moved.data() == outer_memory && moved.size() == 60 && first.size() == 0));  // NOLINT: empty by design
    CHECK(impl::Scratch<int>(1000).size() == 1000);
}

TEST_CASE("an object that outlives what its thread keeps frees its memory itself") {
    std::thread([] {
        // Made before the memory that the thread keeps, and so destroyed after it.
        static thread_local std::optional<impl::Scratch<double>> outlives;
        outlives.reset();
        outlives.emplace(100);
        CHECK(outlives->size() == 100);
    }).join();
}
