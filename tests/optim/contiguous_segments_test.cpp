// SPDX-License-Identifier: Apache-2.0
//
// The contiguous segments of parameters that an optimiser updates in one pass.
#include <cupola/optim/update_parameters.hpp>

#include "../test.hpp"

namespace {

struct Separate {
    using Context = int;
};
struct Joining {
    using Context = int;
    static constexpr bool joins_segments = true;
};

struct OnePass {
    std::int64_t offset, size;
    double l2;

    bool operator==(const OnePass&) const = default;
};

template <class Device>
std::vector<OnePass> passes(const std::vector<Segment>& segments, bool keeps_zeros) {
    int context = 0;
    std::vector<OnePass> result;
    impl::for_each_contiguous_segment(Update<Device>{.context = context, .segments = segments}, keeps_zeros,
                                      [&](const Segment& s) {
                                          result.push_back({s.offset, s.size, s.l2});
                                      });
    return result;
}

}  // namespace

TEST_CASE(
    "on a device that launches once per segment, neighbours with one coefficient are one segment, with the arena's padding") {
    const std::vector<Segment> segments{
        {0, 5, 0.0, 1}, {16, 16, 0.0, 2}, {32, 3, 0.5, 2}, {48, 7, 0.5, 2}, {64, 1, 0.0, 1}};
    CHECK(passes<Joining>(segments, true) == std::vector<OnePass>{{0, 32, 0.0}, {32, 23, 0.5}, {64, 1, 0.0}});
    const std::vector<OnePass> each{{0, 5, 0.0}, {16, 16, 0.0}, {32, 3, 0.5}, {48, 7, 0.5}, {64, 1, 0.0}};
    CHECK(passes<Joining>(segments, false) == each);
    CHECK(passes<Separate>(segments, true) == each);
    CHECK(passes<Joining>({}, true).empty());
}

TEST_CASE("segments with more than padding between them, or none, are not joined") {
    const std::vector<Segment> left_out{{0, 16}, {32, 4}}, packed{{0, 5}, {5, 4}}, backwards{{16, 4}, {0, 4}};
    CHECK(passes<Joining>(left_out, true).size() == 2);
    CHECK(passes<Joining>(packed, true).size() == 2);
    CHECK(passes<Joining>(backwards, true).size() == 2);
}

TEST_CASE("segments of groups with other factors are not joined, and of groups with equal ones they are") {
    std::vector<Segment> segments{{0, 16}, {16, 16}, {32, 16}, {48, 4}};
    segments[1].rate_factor = 2;
    CHECK(passes<Joining>(segments, true).size() == 3);
    segments[0].rate_factor = 2;
    CHECK(passes<Joining>(segments, true) == std::vector<OnePass>{{0, 32, 0.0}, {32, 20, 0.0}});
    segments[3].decay_factor = 0;
    CHECK(passes<Joining>(segments, true).size() == 3);
}
