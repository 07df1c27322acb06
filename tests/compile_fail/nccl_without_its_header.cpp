// SPDX-License-Identifier: Apache-2.0
//
// A device that NCCL knows, and no <cupola/nccl.hpp>.
//
// expect: NcclAllReduce on Gpu needs #include <cupola/nccl.hpp>
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Gpu : Host {
    static constexpr std::string_view name = "Gpu";
    static constexpr bool has_nccl = true;
};

#ifdef WITH_ERROR
using Averaging = NcclAllReduce;
#else
using Averaging = ConcatMean;
#endif

static_assert(static_assert_message<agreement_diagnostic<Averaging, Gpu>()>());
