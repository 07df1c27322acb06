// SPDX-License-Identifier: Apache-2.0
//
// Compressed<Averaging, Element>: wraps an averaging policy so that gradients are exchanged in a 16-bit type (PyTorch's
// bf16_compress_hook):
//
//   DataParallel<Net, Loss, Sgd, Compressed<MpiConcatMean>, Host> training(
//       {.replicas = 4, .averaging = {.policy = {...}}});
//
//   mean = round(average(round(g_0), round(g_1), ...)),   average() is that of `Averaging`, which adds in float
//
// round() is BFloat16's conversion: to nearest, ties to even. A gradient then has 8 bits of significand instead of 24,
// which is a relative error of at most 2^-8 per rounding, and the range of a float. It is applied
// - to each replica's row, once per step, when its backward pass is complete. `gradient(replica)` returns the rounded
//   row;
// - to the average, before it is divided by the loss scale or by the weight per sample of the loss, so that all
//   replicas divide the same values.
//
// Parameters, the optimiser's state, running statistics, losses and the numbers of samples are never rounded. A NaN
// stays a NaN and an infinity an infinity; a finite number from (2 - 2^-8) x 2^127, 3.396e38, on becomes infinite. Each
// of them is reported as without compression. A training with one replica, which has nothing to average, rounds
// nothing.
//
//   AveragesRows    rows and mean are always rounded, even if nothing is exchanged. So the processes of MpiConcatMean
//                   have the same bits for any number of them: with rows in shared memory, with messages of half the
//                   bytes, and with Compressed<ConcatMean> in one process
//   sums            the weighted sums of the processes (MpiAllReduce) are rounded instead of the rows. Each process
//                   adds one part of the columns of all processes, in float and in the order of the processes, rounds
//                   it and sends it to the others: two roundings for any number of processes
//   collectives     the weighted sum of each rank's rows is rounded, and the collective adds in Element: NCCL rounds
//                   after each of its additions, so the error grows with the number of ranks. The divisor is added in
//                   float
//
// A user-defined collective can be compressed if it names its class as `CompressedCollective<Device, Element>`.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/averaging.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Averaging, class Element = BFloat16>
struct Compressed;

namespace impl {

/// Rounds a float in place.
template <class Element>
struct RoundFormula {
    CUPOLA_HOST_DEVICE void operator()(float& value) const { value = static_cast<float>(Element(value)); }
};

template <class A, class Context>
concept AveragesRowsWith = requires(const A& policy, Context& context, const GradientRows& gradients,
                                    std::span<float> mean) { policy.average(context, gradients, mean); };

template <class A>
inline constexpr bool is_compressed = false;
template <class A, class Element>
inline constexpr bool is_compressed<Compressed<A, Element>> = true;

/// "Compressed<ConcatMean, bfloat16>".
template <class A, class Element>
[[nodiscard]] consteval CompileTimeMessage compressed_name() {
    CompileTimeMessage name;
    name << "Compressed<";
    if constexpr (HasPolicyName<A>) {
        name << std::string_view(A::name);
    } else {
        name << type_name<A>();
    }
    return name << ", " << to_string(element_type_of<Element>) << ">";
}
template <class A, class Element>
inline constexpr CompileTimeMessage name_of_compressed = compressed_name<A, Element>();

template <class A, class D, class Element>
concept HasCompressedCollective = requires { sizeof(typename A::template CompressedCollective<D, Element>); };

template <class A, class D, class Element>
struct CompressedCollectiveOf {};
template <class A, class D, class Element>
    requires HasCompressedCollective<A, D, Element>
struct CompressedCollectiveOf<A, D, Element> {
    using Type = typename A::template CompressedCollective<D, Element>;
};

/// The error message for a Compressed that no training on `D` supports; empty if one does.
template <class A, class Element, class D>
[[nodiscard]] consteval CompileTimeMessage compressed_diagnostic() {
    CompileTimeMessage message;
    if constexpr (is_compressed<A>) {
        message << "Compressed cannot wrap " << A::name << ", whose gradients are compressed already";
    } else if constexpr (!std::same_as<Element, BFloat16>) {
        message << "Compressed moves gradients in BFloat16, not in " << type_name<Element>();
    } else if constexpr (AgreesOnCentre<A>) {
        message << "Compressed moves gradients, and " << A::name << " agrees on a centre: put Compressed inside it";
    } else {
        message = agreement_diagnostic<A, D>();
        if constexpr (AveragesBuckets<A, D> && !HasCompressedCollective<A, D, Element>) {
            message << "Compressed cannot wrap " << A::name << " on " << D::name
                    << ": it lacks `CompressedCollective<Device, Element>`";
        }
    }
    return message;
}

}  // namespace impl

/// `policy` is the wrapped policy with its options.
template <class Averaging, class Element>
struct Compressed {
    static constexpr std::string_view name{impl::name_of_compressed<Averaging, Element>.characters,
                                           impl::name_of_compressed<Averaging, Element>.size};
    /// The type in which rounded rows and means are exact.
    using MessageElement = Element;
    template <class Device>
    using Collective = typename impl::CompressedCollectiveOf<Averaging, Device, Element>::Type;

    Averaging policy{};

    /// Rounds a row in place.
    template <class Context>
        requires impl::AveragesRowsWith<Averaging, Context>
    void prepare(Context& context, std::span<float> row) const {
        if constexpr (requires { policy.prepare(context, row); }) policy.prepare(context, row);
        for_each_element(context, static_cast<std::int64_t>(row.size()), impl::RoundFormula<Element>{}, row.data());
    }
    /// The rounded average of rows that prepare() has rounded.
    template <class Context>
        requires impl::AveragesRowsWith<Averaging, Context>
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const {
        policy.average(context, gradients, mean);
        for_each_element(context, static_cast<std::int64_t>(mean.size()), impl::RoundFormula<Element>{}, mean.data());
    }
    operator const Averaging&() const { return policy; }  // NOLINT: a collective is constructed from the wrapped policy

    template <class Device>
    static consteval CompileTimeMessage diagnostic() {
        return impl::compressed_diagnostic<Averaging, Element, Device>();
    }
};

/// For policies that span processes.
template <class Averaging, class Element>
    requires SpansProcesses<Averaging>
struct Compressed<Averaging, Element> {
    static constexpr std::string_view name{impl::name_of_compressed<Averaging, Element>.characters,
                                           impl::name_of_compressed<Averaging, Element>.size};
    using MessageElement = Element;
    using Rows = Compressed<typename Averaging::Rows, Element>;
    static constexpr bool sums = sums_of_processes<Averaging>;

    Averaging policy{};
    Rows rows{policy.rows};

    [[nodiscard]] std::shared_ptr<Processes> join() const { return policy.join(); }

    template <class Device>
    static consteval CompileTimeMessage diagnostic() {
        return impl::compressed_diagnostic<Averaging, Element, Device>();
    }
};

}}  // namespace cupola::CUPOLA_ABI
