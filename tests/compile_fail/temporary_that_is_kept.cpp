// SPDX-License-Identifier: Apache-2.0
//
// Temporaries as samples, labels, names and functions that are kept and not copied.
//
// expect: a temporary is gone before it is read here, because nothing is copied: keep it in a variable
// expect: [with Source = std::vector<float
// expect: [with Source = std::vector<int
// expect: [with Source = std::vector<unsigned char
// expect: [with Source = std::__cxx11::basic_string<char>; View = std::basic_string_view<char>]
// expect: CheckpointInfo&)>]
// expect: Columns&&)'
// expect-clang: a temporary is gone before it is read here, because nothing is copied: keep it in a variable
// expect-clang: Borrowed<std::vector<float>>
// expect-clang: Borrowed<std::vector<int>>
// expect-clang: Borrowed<std::vector<unsigned char>>
// expect-clang: Borrowed<std::basic_string<char>>
// expect-clang: Borrowed<(lambda at
// expect-clang: call to deleted constructor of 'const BatchSpan'
// errors-at-most: 6
#include <cupola/cupola.hpp>
#include <cupola/train/checkpoint_every.hpp>

using namespace cupola;

struct Made {
    std::string name = "boxes";
    std::vector<float> floats{1, 2};
    std::vector<std::int32_t> labels{0, 1};
    std::vector<std::uint8_t> bytes{3, 4};
};

void run(const Made& made) {
    const auto progress = [](CheckpointInfo&) {};
    const Columns columns{{"input", ElementType::float32, {1}}};
#ifdef WITH_ERROR
    const auto load = [&] { return made; };
    const InMemory classes({1}, load().floats, load().labels, 2);
    const InMemory named({1}, made.floats, {{made.name + " of all", {1}, Made().bytes}});
    const CheckpointOptions options{.progress = [](CheckpointInfo&) {}};
    const BatchSpan batch{Columns(columns)};
#else
    const InMemory classes({1}, made.floats, made.labels, 2);
    const InMemory named({1}, made.floats, {{made.name, {1}, made.bytes}}, "all");
    const InMemory spans({1}, std::span(made.floats), {1}, std::span(made.floats).first(2), std::string_view("all"));
    const CheckpointOptions options{.progress = progress};
    const BatchSpan batch{columns};
#endif
}
