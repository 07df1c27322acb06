// SPDX-License-Identifier: Apache-2.0
#include "device_flags.hpp"

#include <cstdlib>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

namespace cifar10 {

namespace {

using cupola::NcclAllReduce, cupola::require;

/// `why` is a sentence, or nothing.
void refuse(bool given, std::string_view flag, std::string_view device, std::string_view why = {}) {
    require(!given, flag, " is for --device ", device, why.empty() ? "" : ": ", why);
}

void check_processes(const TrainOptions& o) {
    const bool any = o.processes != 1 || o.process >= 0 || !o.id_file.empty();
    require(!any || o.averaging == "nccl", "--processes, --process and --id-file are for --averaging nccl");
    require(o.process < o.processes, "--process is a number below --processes, ", o.processes, ", not ", o.process);
    if (o.processes == 1) return;
    require(o.process >= 0, "--processes ", o.processes, " needs --process, the number of this one from 0 to ",
            o.processes - 1);
    const char* const id = std::getenv(NcclAllReduce::id_variable);
    require(!o.id_file.empty() || (id != nullptr && *id != '\0'), "--processes ", o.processes,
            " needs --id-file, one name of a new file for all of them, or the environment variable ",
            NcclAllReduce::id_variable);
}

void check_host(const TrainOptions& o) {
    require(o.averaging == "concat-mean", "--averaging is concat-mean on the CPU; ", o.averaging,
            o.averaging == "nccl" ? " needs GPUs, --device cuda" : " is no averaging policy");
    refuse(o.tf32, "--tf32", "cuda");
    refuse(o.deterministic, "--deterministic", "cuda",
           "on the host the same number of threads gives the same bits without it");
    refuse(!o.plan_choices.empty(), "--plan-choices", "cuda");
}

void check_cuda(const TrainOptions& o) {
    require(o.averaging == "concat-mean" || o.averaging == "nccl", "--averaging is concat-mean or nccl, not ",
            o.averaging);
    refuse(o.threads_per_device != 0, "--threads-per-device", "host");
    refuse(o.prefetch_workers >= 0, "--prefetch-workers", "host", "GPUs make their batches themselves");
    refuse(!o.convolution.empty(), "--convolution", "host", "cuDNN computes those of GPUs");
    refuse(o.bn_stats == "synchronized", "--bn-stats synchronized", "host",
           "replicas on GPUs normalise over their own batches");
    refuse(o.profile, "--profile", "host");
}

}  // namespace

void check_device_flags(const TrainOptions& options) {
    require(options.device == "host" || options.device == "cuda", "--device is host or cuda, not ", options.device);
    options.device == "cuda" ? check_cuda(options) : check_host(options);
    check_processes(options);
}

}  // namespace cifar10
