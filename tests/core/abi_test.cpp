// SPDX-License-Identifier: Apache-2.0
//
// The version, and the inline namespace of the code.
#include "../test.hpp"

#include <typeinfo>

#include <cupola/core/abi.hpp>

static_assert(cupola::version.major == CUPOLA_VERSION_MAJOR && cupola::version.minor == CUPOLA_VERSION_MINOR &&
              cupola::version.patch == CUPOLA_VERSION_PATCH);

TEST_CASE("symbols carry the version and the instruction set that they are compiled for") {
    const std::string isa = cupola::compiled_isa;
    const std::string name = "v" + std::to_string(cupola::version.major) + "_" + std::to_string(cupola::version.minor) +
                             (isa == "baseline" ? "" : "_" + isa);
    CHECK(typeid(cupola::Version).name() == "N6cupola" + std::to_string(name.size()) + name + "7VersionE");
}
