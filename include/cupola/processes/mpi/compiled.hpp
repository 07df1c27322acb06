// SPDX-License-Identifier: Apache-2.0
//
// The agreements between processes on `Host`, which do not depend on the network, in a program that is compiled with
// CUPOLA_SEPARATE_COMPILATION: declared here, and defined in the file that includes mpi_src.hpp.
#pragma once

#ifdef CUPOLA_SEPARATE_COMPILATION

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/parallel/host/queue.hpp>
#include <cupola/processes/agreement/process_compressed_sums_agreement.hpp>
#include <cupola/processes/agreement/process_rows_agreement.hpp>
#include <cupola/processes/agreement/process_sums_agreement.hpp>
#include <cupola/processes/agreement/slice_messages.hpp>
#include <cupola/processes/agreement/step_records.hpp>
#include <cupola/processes/agreement/step_vote.hpp>

#ifdef CUPOLA_MPI_SRC
#define CUPOLA_MPI_TEMPLATE template
#else
#define CUPOLA_MPI_TEMPLATE extern template
#endif

namespace cupola { inline namespace CUPOLA_ABI {

/// The only list of these templates, per element type of activations.
#define CUPOLA_MPI_AGREEMENTS(T)                                             \
    CUPOLA_MPI_TEMPLATE class impl::StepRecords<Host, T>;                    \
    CUPOLA_MPI_TEMPLATE class impl::StepVote<Host, T>;                       \
    CUPOLA_MPI_TEMPLATE class impl::SliceMessages<Host, T, float>;           \
    CUPOLA_MPI_TEMPLATE class impl::SliceMessages<Host, T, BFloat16>;        \
    CUPOLA_MPI_TEMPLATE class impl::ProcessRowsAgreement<Host, T, float>;    \
    CUPOLA_MPI_TEMPLATE class impl::ProcessRowsAgreement<Host, T, BFloat16>; \
    CUPOLA_MPI_TEMPLATE class impl::ProcessSumsAgreement<Host, T>;           \
    CUPOLA_MPI_TEMPLATE class impl::ProcessCompressedSumsAgreement<Host, T, BFloat16>;
CUPOLA_MPI_AGREEMENTS(float)
CUPOLA_MPI_AGREEMENTS(BFloat16)
#undef CUPOLA_MPI_AGREEMENTS
#undef CUPOLA_MPI_TEMPLATE

/// As include_cupola_src_hpp_in_exactly_one_file_with_the_same_flags, for the files that include mpi.hpp.
extern const char include_cupola_mpi_src_hpp_in_exactly_one_file_with_the_same_flags;
namespace {
[[maybe_unused, gnu::used]] const char* const uses_cupola_mpi_src_hpp =
    &include_cupola_mpi_src_hpp_in_exactly_one_file_with_the_same_flags;
}  // namespace

}}  // namespace cupola::CUPOLA_ABI

#endif
