// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/transform_description.hpp>

#include "../test.hpp"

namespace {

struct Halved {};
struct Scaled {
    std::string_view description() const { return "Scaled by 2"; }
};

}  // namespace

TEST_CASE("a transform is described by itself, or by the name of its type") {
    CHECK(impl::description_of_transform(Scaled{}) == "Scaled by 2");
    CHECK(impl::description_of_transform(Halved{}) == "Halved");
}
