// SPDX-License-Identifier: Apache-2.0
//
// The constants in the emulator's declarations of cuDNN and cuBLASLt equal those of NVIDIA's headers: all of them, from lists that
// CMakeLists.txt makes of these declarations.
#include "../test.hpp"

#include <cublasLt.h>
#include <cudnn_backend.h>

namespace emulated {
// NOLINTBEGIN
#include "emulator/include/cublasLt_values.h"
#include "emulator/include/cudnn_values.h"
namespace library {
#include "emulator/include/library_types.h"
}
using namespace library;
// NOLINTEND
}  // namespace emulated

#define CUPOLA_SAME(name) \
    ++compared;           \
    CHECK_MESSAGE(static_cast<int>(::name) == static_cast<int>(emulated::name), #name);

TEST_CASE("the emulator's cuDNN has NVIDIA's numbers") {
    int compared = 0;
#include "cudnn_values.inc"
    CHECK(compared >= 138);
}

TEST_CASE("the emulator's cuBLASLt has NVIDIA's numbers") {
    int compared = 0;
#include "cublasLt_values.inc"
#include "library_types.inc"
    CHECK(compared >= 43);
}
