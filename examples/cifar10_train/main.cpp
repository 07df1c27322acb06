// SPDX-License-Identifier: Apache-2.0
//
// The command line of cifar10_train: each flag with its values, the option that it sets, its help text, and the flags
// that it excludes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/launched_processes.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

#include "../command_line.hpp"
#include "options.hpp"

namespace {

using cifar10::TrainOptions;
using namespace cupola;
using command_line::not_empty, command_line::whole_number;

constexpr int max_threads = 4096, max_replicas = 1 << 20, max_processes = 1024, max_parts = 4,
              max_parts_of_tutorial = 3;
constexpr std::int64_t max_steps = 1'000'000'000'000, max_images = 1'000'000'000;

CLI::Validator count() { return whole_number<std::int64_t>(0, max_steps); }

/// Accepts a finite number, at least 0.
CLI::Validator rate() {
    const auto check = [](const std::string& given) -> std::string {
        double number = -1;
        const char* const end = given.data() + given.size();
        const auto [stop, error] = cupola::number_from_chars(given.data(), end, number);
        if (stop == end && error == std::errc{} && std::isfinite(number) && number >= 0) return {};
        return given + " is not a number of at least 0";
    };
    return {check, ""};
}

/// Accepts a limit for gradient clipping: 0 for no limit, or a number that is more than 0 as a float too.
CLI::Validator clip_limit() {
    const auto check = [](const std::string& given) -> std::string {
        double number = 0;
        static_cast<void>(cupola::number_from_chars(given.data(), given.data() + given.size(), number));
        // rate() rejects anything that is not a number of at least 0, and reports it alone.
        if (!(number > 0) || number >= std::numeric_limits<float>::min()) return {};
        return given + " is too small a limit: it must be 0 (no limit) or at least 1.18e-38";
    };
    return rate() & CLI::Validator(check, "");
}

using Names = std::initializer_list<std::string_view>;

/// The names of --optimizer and --lr-scaling, for their help and their check.
const Names optimizers{"sgd",     "momentum", "nesterov", "nesterov-velocity", "adam", "adamw", "adamax", "adagrad",
                       "rmsprop", "lars",     "lamb"};
const Names rate_scalings{"none", "linear", "square-root"};

/// "sgd, momentum or adam"
std::string list_of(Names names) {
    std::string list;
    for (const std::string_view& name : names) {
        const bool first = &name == names.begin(), last = &name + 1 == names.end();
        list += text(first ? "" : last ? " or " : ", ", name);
    }
    return list;
}

/// The flags, in the order of --help.
struct Flags {
    Flags(CLI::App& application, TrainOptions& options) : app(application), o(options) {
        add_data_and_folder();
        add_network_and_device();
        add_steps();
        add_replicas();
        add_optimizer();
        add_log();
    }
    Flags(const Flags&) = delete;
    Flags& operator=(const Flags&) = delete;

    /// Throws InvalidArgument for a flag whose value is not one of its names, or that is invalid with the other flags.
    void check_all() const {
        for (const auto& one : checks) one();
    }

    void check(std::function<void()> one) { checks.push_back(std::move(one)); }

    void one_of(const char* flag, const std::string& value, Names names) const {
        require(std::find(names.begin(), names.end(), value) != names.end(), flag, " must be ", list_of(names),
                ", not ", value);
    }
    /// Rejects a flag that is given and applies only to the other device.
    void only_on(std::string_view device, bool given, std::string_view flag, std::string_view why = {}) const {
        require(!given || o.device == device, flag, " is for --device ", device, why.empty() ? "" : ": ", why);
    }

    void check_averaging() const {
        const bool nccl = o.averaging == "nccl", mpi = is_mpi(o.averaging);
        only_on("host", o.asynchronous(), o.order.empty() ? "--averaging " + o.averaging : "--order",
                "replicas exchange in the host's memory");
        const bool known = o.averaging == "concat-mean" || o.own_parameters() || (nccl && o.on_cuda());
        require(known || !o.on_cuda(),
                "--averaging must be concat-mean, local-sgd, diloco, elastic or nccl on GPUs, not ", o.averaging);
        require(known || mpi,
                "--averaging must be concat-mean, local-sgd, diloco, elastic, downpour, hogwild, backup, "
                "mpi-concat-mean or mpi-all-reduce on the CPU; ",
                o.averaging, nccl ? " needs GPUs, --device cuda" : " is not an averaging policy");
        require_built_for("--averaging ", o.averaging);
    }
    /// Rejects a policy of MPI in a program without.
    static void require_built_for([[maybe_unused]] const char* flag, [[maybe_unused]] const std::string& policy) {
#ifndef CUPOLA_EXAMPLE_MPI
        require(!is_mpi(policy), "this program was built without MPI: leave out ", flag, policy,
                ", or build it again after configuring Cupola with -DCUPOLA_MPI=ON, for which Open MPI has to be "
                "installed");
#endif
    }
    static bool is_mpi(const std::string& policy) { return policy == "mpi-concat-mean" || policy == "mpi-all-reduce"; }

    /// The flags of replicas with parameters of their own.
    void add_agreement_on_centre() {
        const auto given = [](const CLI::Option* flag) { return flag->count() > 0; };
        const auto* const period =
            app.add_option("--period", o.period,
                           "Steps between two agreements of local-sgd, diloco and elastic, or batches of a replica\n"
                           "between two of its exchanges. Default: 16; for downpour 1")
                ->check(whole_number<std::int64_t>(1, max_steps));
        const auto* const from_step =
            app.add_option("--from-step", o.from_step,
                           "For local-sgd and diloco: before this step the gradients are averaged in each step")
                ->capture_default_str()
                ->check(count());
        const auto* const fragments =
            app.add_option(
                   "--fragments", o.fragments,
                   "For local-sgd and diloco: contiguous parts of the parameters, which agree one after another\n"
                   "in a period")
                ->capture_default_str()
                ->check(whole_number<std::int64_t>(1, max_steps));
        const auto* const delay =
            app.add_option("--delay", o.delay,
                           "For local-sgd and diloco: steps from the mean of the replicas to the centre's move by it,\n"
                           "in which training goes on; less than --period / --fragments")
                ->capture_default_str()
                ->check(count());
        const auto* const moving_rate =
            app.add_option("--moving-rate", o.moving_rate,
                           "For elastic: by which part of their difference replica and centre move at an agreement.\n"
                           "Default: 0.9 / --num-replicas")
                ->check(rate());
        const auto* const outer_rate = app.add_option("--outer-rate", o.outer_rate,
                                                      "For diloco: the learning rate of the outer optimiser, Nesterov")
                                           ->capture_default_str()
                                           ->check(rate());
        const auto* const outer_momentum =
            app.add_option("--outer-momentum", o.outer_momentum, "For diloco: its momentum; 0 for plain SGD")
                ->capture_default_str()
                ->check(rate());
        const auto* const inner =
            app.add_option(
                   "--inner", o.inner,
                   "For local-sgd, diloco and elastic: the policy that averages the replicas' differences,\n"
                   "concat-mean; on the host mpi-concat-mean or mpi-all-reduce, on GPUs nccl. For replicas\n"
                   "that do not wait, mpi-concat-mean: several processes of one machine, which share the centre")
                ->capture_default_str();
        const auto* const order =
            app.add_option("--order", o.order,
                           "For elastic and downpour: replicas exchange without waiting for each other, as they come\n"
                           "(free), one after another (round-robin), or as an earlier run did (replay)");
        app.add_option("--order-log", o.order_log,
                       "File that the order of such a run is written to, and that replay reads: the same bits again")
            ->check(not_empty());
        const auto* const ahead =
            app.add_option("--ahead", o.ahead, "Largest number of steps in flight of replicas that do not wait")
                ->capture_default_str()
                ->check(whole_number<std::int64_t>(1, 4096));
        const auto* const backup_count =
            app.add_option("--backup-count", o.backup_count,
                           "For backup: the gradients that a step needs. Default: --num-replicas less one")
                ->check(whole_number(1, max_replicas));
        check([=, this] {
            const bool elastic = o.averaging == "elastic", diloco = o.averaging == "diloco";
            const bool downpour = o.averaging == "downpour";
            const bool has_period = o.own_parameters() && o.averaging != "hogwild" && o.averaging != "backup";
            if (downpour && !given(period)) o.period = 1;
            require(has_period || !given(period), "--period is for --averaging local-sgd, diloco, elastic or downpour");
            require(o.averaging == "local-sgd" || diloco || !given(from_step),
                    "--from-step is for --averaging local-sgd or diloco");
            require(o.averaging == "local-sgd" || diloco || !given(fragments),
                    "--fragments is for --averaging local-sgd or diloco");
            require(o.averaging == "local-sgd" || diloco || !given(delay),
                    "--delay is for --averaging local-sgd or diloco");
            require(o.fragments <= o.period, "--fragments must be at most --period, ", o.period, ", not ", o.fragments);
            require(o.delay < o.period / o.fragments, "--delay must be less than --period / --fragments, ",
                    o.period / o.fragments, ", not ", o.delay);
            require(elastic || !given(moving_rate), "--moving-rate is for --averaging elastic");
            require(!o.moving_rate || *o.moving_rate > 0, "--moving-rate must be more than 0");
            require(diloco || !given(outer_rate), "--outer-rate is for --averaging diloco");
            require(diloco || !given(outer_momentum), "--outer-momentum is for --averaging diloco");
            require(o.outer_momentum < 1, "--outer-momentum must be less than 1, not ", o.outer_momentum);
            require(elastic || downpour || !given(order), "--order is for --averaging elastic or downpour");
            if (given(order)) one_of("--order", o.order, {"free", "round-robin", "replay"});
            require((o.asynchronous() && has_period) || o.order_log.empty(),
                    "--order-log is for --averaging downpour, or elastic with --order");
            require(o.order != "replay" || !o.order_log.empty(), "--order replay needs --order-log, the file to read");
            require(o.asynchronous() || !given(ahead),
                    "--ahead is for --averaging downpour, hogwild or backup, or elastic with --order");
            require(o.averaging == "backup" || !given(backup_count), "--backup-count is for --averaging backup");
            require(o.backup_count <= o.num_replicas, "--backup-count must be at most --num-replicas, ", o.num_replicas,
                    ", not ", o.backup_count);
            require((o.own_parameters() && o.averaging != "backup") || !given(inner),
                    "--inner is for --averaging local-sgd, diloco, elastic, downpour or hogwild");
            one_of("--inner", o.inner, {"concat-mean", "mpi-concat-mean", "mpi-all-reduce", "nccl"});
            require(!o.asynchronous() || o.inner == "concat-mean" || o.inner == "mpi-concat-mean",
                    "--inner must be concat-mean, for one process, or mpi-concat-mean for --averaging ", o.averaging,
                    o.order.empty() ? "" : " with --order", ", whose replicas average nothing, not ", o.inner);
            only_on("cuda", o.inner == "nccl", "--inner nccl", "NCCL exchanges between GPUs");
            only_on("host", is_mpi(o.inner), "--inner " + o.inner);
            require_built_for("--inner ", o.inner);
            require(!o.own_parameters() || o.precision != "half", "--averaging ", o.averaging,
                    " is not for --precision half, whose loss scale skips steps: use bf16");
            require(!o.asynchronous() || o.bn_stats != "synchronized",
                    "--bn-stats synchronized is not for --averaging ", o.averaging, ": no replica waits for another");
            require(!o.asynchronous() || o.precision == "float", "--averaging ", o.averaging,
                    o.order.empty() ? "" : " with --order", " is for --precision float");
            require(!o.asynchronous() || !o.profile, "--profile is not for --averaging ", o.averaging,
                    o.order.empty() ? "" : " with --order", ": its replicas are in several steps at once");
        });
    }

    /// The processes that divide the replicas by MPI: those that its launcher says, before MPI itself is started.
    [[nodiscard]] int processes_by_mpi() const {
        if (!o.by_mpi()) return 1;
        const auto value_of = [](const char* name) {
            // That of torchrun, which starts no processes of MPI.
            return std::string_view(name) == "WORLD_SIZE" ? nullptr : std::getenv(name);
        };
        return impl::launched_processes(value_of).count;
    }

    /// The flags of a network in parts.
    void add_pipeline() {
        app.add_option("--pipeline", o.pipeline,
                       "Parts of the network, 2 to 4, each on a device of its own, which compute several batches of a\n"
                       "step at a time: --num-devices counts the devices of all parts. Default: not in parts")
            ->check(whole_number(2, max_parts));
        const auto* const schedule =
            app.add_option("--pipeline-schedule", o.pipeline_schedule,
                           "For --pipeline: 1f1b, or gpipe, which keeps the activations of all batches; the same bits")
                ->capture_default_str();
        check([=, this] {
            one_of("--pipeline-schedule", o.pipeline_schedule, {"1f1b", "gpipe"});
            require(o.pipeline > 1 || schedule->count() == 0, "--pipeline-schedule is for --pipeline");
            if (o.pipeline == 1) return;
            only_on("host", true, "--pipeline");
            require(o.model == "resnet" || o.pipeline <= max_parts_of_tutorial, "--pipeline must be at most ",
                    max_parts_of_tutorial, " for --model tutorial, which has no more places for cuts, not ",
                    o.pipeline);
            const int groups = o.num_devices / o.pipeline, processes = processes_by_mpi();
            const int replicas = std::max(1, o.num_replicas / processes);
            require(groups * o.pipeline == o.num_devices && groups <= replicas, "--num-devices must be --pipeline, ",
                    o.pipeline, ", times 1 to ",
                    processes == 1 ? "--num-replicas, " : text("the replicas of each of ", processes, " processes, "),
                    replicas, ", not ", o.num_devices);
            require(o.bn_stats != "synchronized", "--bn-stats synchronized is not for --pipeline ", o.pipeline,
                    ": its parts compute several batches at a time");
            require(!o.asynchronous(), "--averaging ", o.averaging, o.order.empty() ? "" : " with --order",
                    " is not for --pipeline ", o.pipeline, ": no replica waits for another");
            require(!o.profile, "--profile is not for --pipeline ", o.pipeline,
                    ": it measures the network without its cuts, and prints the best ones");
        });
    }

    void check_processes() {
        const bool any = o.processes != 0 || o.process >= 0 || !o.id_file.empty() || !o.address.empty();
        require(!any || o.by_nccl(), "--processes, --process, --id-file and --address are for --averaging nccl");
        require(o.process < 0 || o.processes > 0, "--process ", o.process, " needs --processes, their number");
        require(o.process < o.processes || o.processes == 0, "--process must be less than --processes, ", o.processes,
                ", not ", o.process);
        require(o.id_file.empty() || o.address.empty(), "--id-file and --address exclude each other");
        if (o.processes <= 1) return;
        require(o.process >= 0, "--processes ", o.processes, " needs --process, the number of this one from 0 to ",
                o.processes - 1);
        const auto is_set = [](const char* name) {
            const char* const value = std::getenv(name);
            return value != nullptr && *value != '\0';
        };
        require(
            !o.id_file.empty() || !o.address.empty() || is_set(NcclAllReduce::id_variable) || is_set("MASTER_ADDR"),
            "--processes ", o.processes,
            " needs --id-file, the name of a new file, the same for all of them, or --address, the host and a port of "
            "process 0, or the environment variables MASTER_ADDR and MASTER_PORT, or ",
            NcclAllReduce::id_variable);
    }

    void add_data_and_folder() {
        app.add_option("--data-dir", o.data_dir,
                       "Images: a folder of CIFAR-10's .bin files, or the one above it, or a folder or archive with\n"
                       "train/<class>/*.jpg and test/<class>/*.jpg. Default: the sample that comes with this example")
            ->check(not_empty());
        app.add_flag("--download", o.download, "Download CIFAR-10 to --data-dir first, unless it is there");
        check([this] {
            require(!o.download || !o.data_dir.empty(), "--download needs --data-dir, the folder for the images");
        });
        train_dir =
            app.add_option("--train-dir", o.run.folder,
                           "Folder for the run's checkpoints, TensorBoard events and log. Default: nothing is written")
                ->check(not_empty());
        app.add_flag("--resume", resume, "Resume from the newest checkpoint in --train-dir with the same next sample");
        app.add_flag("--resume-anyway", resume_anyway,
                     "Like --resume, but accept a checkpoint of other settings; the differences are printed");
        check([this] {
            o.run.resume = resume_anyway ? Resume::anyway : resume ? Resume::yes : Resume::no;
            o.run.names = {.folder = "--train-dir",
                           .resume = "--resume",
                           .resume_anyway = "--resume-anyway",
                           .keep_best = "--keep-best",
                           .max_steps = "--max-steps",
                           .may_change =
                               "--max-steps (but for a cosine), --num-devices and --pipeline with the same "
                               "--threads-per-device, --pipeline-schedule, --prefetch-workers and the flags of "
                               "logs, summaries and checkpoints"};
            check_run_options(o.run);
        });
    }

    void add_network_and_device() {
        app.add_option("--device", o.device, "Device to train on: host (the processors) or cuda (NVIDIA GPUs)")
            ->capture_default_str();
        check([this] { one_of("--device", o.device, {"host", "cuda"}); });
        app.add_option("--model", o.model, "tutorial: TensorFlow's CIFAR-10 network; resnet: ResNet-44")
            ->capture_default_str();
        check([this] { one_of("--model", o.model, {"tutorial", "resnet"}); });
        app.add_option(
               "--precision", o.precision,
               "Type of activations: float; bf16 (bfloat16, with parameters and sums in float); or half, with a loss\n"
               "scale that changes, on GPUs")
            ->capture_default_str();
        check([this] {
            one_of("--precision", o.precision, {"float", "bf16", "half"});
            only_on("cuda", o.precision == "half", "--precision half", "the processors compute in float or bf16");
        });
        app.add_option(
            "--convolution", o.convolution,
            "How the host computes convolutions of 3 x 3 and 5 x 5: winograd, or direct by oneDNN. The results\n"
            "agree up to rounding. Default: winograd; for bf16 direct with AMX or without AVX-512");
        check([this] {
            only_on("host", !o.convolution.empty(), "--convolution", "cuDNN computes those of GPUs");
            if (o.convolution.empty()) return;
            one_of("--convolution", o.convolution, {"winograd", "direct"});
            check_convolution(o);
        });
        app.add_flag("--tf32", o.tf32, "Allow GPUs to round the factors of products in float to the 10 bits of TF32");
        check([this] { only_on("cuda", o.tf32, "--tf32"); });
        app.add_flag("--tf32-convolutions", o.tf32_convolutions,
                     "The same for convolutions alone, as PyTorch does by default");
        check([this] { only_on("cuda", o.tf32_convolutions, "--tf32-convolutions"); });
        app.add_flag("--deterministic", o.deterministic, "Use only deterministic algorithms on GPUs");
        check([this] {
            only_on("cuda", o.deterministic, "--deterministic",
                    "on the host the same number of threads gives the same bits without it");
        });
        app.add_option(
               "--plan-choices", o.plan_choices,
               "File with the chosen algorithms of cuDNN and cuBLASLt, so that another run uses the same: read\n"
               "if it exists, and written. Default: cudnn-plans.txt in --train-dir, if there is one")
            ->check(not_empty());
        check([this] { only_on("cuda", !o.plan_choices.empty(), "--plan-choices"); });
        app.add_option(
               "--plan-seconds", o.plan_seconds,
               "Seconds for timing the algorithms of one operation on the GPU, of which the fastest is taken; 0\n"
               "takes the first that is offered")
            ->capture_default_str()
            ->check(rate());
        check([this] { only_on("cuda", o.plan_seconds != TrainOptions{}.plan_seconds, "--plan-seconds"); });
        app.add_option("--bn-stats", o.bn_stats,
                       "Replicas whose batch-normalisation statistics are kept: first, last, all, merged "
                       "or synchronized (which\n"
                       "also normalises over all replicas, on the host)")
            ->capture_default_str();
        check([this] {
            one_of("--bn-stats", o.bn_stats, {"first", "last", "all", "merged", "synchronized"});
            require(o.model == "resnet" || o.bn_stats == "first",
                    "--bn-stats is for --model resnet: the tutorial's network has no batch normalisation");
            only_on("host", o.bn_stats == "synchronized", "--bn-stats synchronized",
                    "replicas on GPUs normalise over their own batches");
        });
    }

    void add_steps() {
        app.add_option("--max-steps", o.run.max_steps.emplace(1000),
                       "Number of steps; one step updates the parameters once")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(1, max_steps));
        app.add_option("--batch-size", o.batch_size, "Images per replica and step")
            ->capture_default_str()
            ->check(whole_number<std::int64_t>(1, max_images));
        app.add_option("--accumulation", o.gradient_accumulation_steps,
                       "Batches per replica that are accumulated before the gradients are averaged")
            ->capture_default_str()
            ->check(whole_number(1, max_replicas));
        app.add_option("--seed", o.seed, "Seed of every random number of the run")
            ->capture_default_str()
            ->check(whole_number<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()));
    }

    void add_replicas() {
        app.add_option(
               "--num-replicas", o.num_replicas,
               "Copies of the network; each processes one batch per step. Those of all processes, whose number must\n"
               "divide it")
            ->capture_default_str()
            ->check(whole_number(1, max_replicas));
        app.add_option(
               "--num-devices", o.num_devices,
               "Devices of the host (groups of threads), or GPUs, that run the replicas of a process: 1 to "
               "their number.\n"
               "With concat-mean the result does not depend on it. Default, or 0: one per replica, at most one per "
               "processor\n"
               "or GPU")
            ->check(whole_number(0, max_threads));
        check([this] {
            require(o.num_devices <= o.num_replicas || o.pipeline > 1, "--num-devices must be at most --num-replicas, ",
                    o.num_replicas, ", not ", o.num_devices);
        });
        add_pipeline();
        app.add_option("--devices-per-gpu", o.devices_per_gpu,
                       "Devices that share each GPU, to try a training of several devices on fewer GPUs; not for nccl")
            ->capture_default_str()
            ->check(whole_number(1, 1024));
        check([this] {
            only_on("cuda", o.devices_per_gpu != 1, "--devices-per-gpu");
            require(o.devices_per_gpu == 1 || !o.by_nccl(), "--devices-per-gpu is not for ",
                    o.own_parameters() ? "--inner" : "--averaging",
                    " nccl: NCCL allows a GPU only one rank of a process");
        });
        app.add_option("--threads-per-device", o.threads_per_device,
                       "OpenMP threads per device of the host. Default, or 0: an equal part of the processors")
            ->check(whole_number(0, max_threads));
        check([this] { only_on("host", o.threads_per_device != 0, "--threads-per-device"); });
        app.add_option("--prefetch-workers", o.prefetch_workers,
                       "Threads that prepare batches in advance; 0: the devices do. Default: the processors that no\n"
                       "device uses")
            ->check(whole_number(0, 1024));
        check([this] {
            only_on("host", o.prefetch_workers >= 0, "--prefetch-workers", "GPUs make their batches themselves");
        });
        app.add_option(
               "--averaging", o.averaging,
               "How replicas agree on a gradient: concat-mean; nccl, between GPUs; or, on the host and in several\n"
               "processes that mpirun or srun starts, mpi-concat-mean (the result of one process) or mpi-all-reduce.\n"
               "Or how replicas with parameters of their own agree on a centre, which is the model: local-sgd, its\n"
               "mean; diloco, a step of an outer optimiser; elastic, a force between each and the centre; and,\n"
               "without waiting for each other, downpour and hogwild. Or backup: the first gradients of a step count")
            ->capture_default_str();
        check([this] { check_averaging(); });
        add_agreement_on_centre();
        app.add_option("--gradient-compression", o.gradient_compression,
                       "none, or bfloat16: processes, and GPUs with nccl, exchange gradients of 16 bits")
            ->capture_default_str();
        check([this] {
            require(o.gradient_compression == "none" || o.gradient_compression == "bfloat16",
                    "--gradient-compression must be none or bfloat16, not ", o.gradient_compression);
            require(o.gradient_compression == "none" || (o.by_mpi() && !o.asynchronous()) || o.by_nccl(),
                    "--gradient-compression is for --averaging mpi-... or nccl: in one process of concat-mean "
                    "nothing moves");
        });
        app.add_option(
               "--deadline", o.deadline,
               "Seconds that a process of several waits for the others before it ends; a checkpoint that process 0\n"
               "writes is waited for too")
            ->capture_default_str()
            ->check(rate());
        check([this] {
            require(o.deadline == 60 || o.by_mpi() || o.by_nccl(), "--deadline is for --averaging mpi-... or nccl");
        });
        app.add_flag("--survive", o.survive,
                     "Go on without a process that was killed, from the last checkpoint and to the same result: with\n"
                     "--averaging mpi-concat-mean, by mpirun --with-ft ulfm of Open MPI 5.0");
        check([this] {
            require(!o.survive || o.averaging == "mpi-concat-mean",
                    "--survive is for --averaging mpi-concat-mean: with ", o.averaging,
                    " a training ends when a process is lost");
            require(!o.survive || !o.run.folder.empty(),
                    "--survive needs --train-dir, the folder of the checkpoints that the processes go on from");
        });
        app.add_option("--processes", o.processes,
                       "Processes that train together, with --averaging nccl. Default: those that the launcher\n"
                       "says (torchrun, mpirun, srun), or 1")
            ->check(whole_number(1, max_processes));
        app.add_option("--process", o.process, "Number of this process, from 0. Process 0 writes the files")
            ->check(whole_number(0, max_processes - 1));
        app.add_option("--id-file", o.id_file,
                       "File by which the processes find each other: a name that no other start uses")
            ->check(not_empty());
        app.add_option("--address", o.address,
                       "host:port at which process 0 waits for the others. Default: MASTER_ADDR and MASTER_PORT")
            ->check(not_empty());
        check([this] { check_processes(); });
        app.add_flag("--log-device-placement", o.log_device_placement, "Print which device runs each operation");
        app.add_flag("--profile", o.profile, "Run 25 steps, print the time of each operation in the last 20, and exit");
        check([this] {
            only_on("host", o.profile, "--profile");
            require(!o.profile || o.run.folder.empty(),
                    "--profile runs a few steps and writes nothing: omit --train-dir");
        });
    }

    void add_optimizer() {
        app.add_option("--optimizer", o.optimizer, list_of(optimizers) + ". Default: the model's, sgd or momentum");
        check([this] {
            if (!o.optimizer.empty()) one_of("--optimizer", o.optimizer, optimizers);
        });
        app.add_option("--learning-rate", o.learning_rate, "Initial learning rate of the schedule")
            ->capture_default_str()
            ->check(rate());
        app.add_option(
            "--schedule", o.schedule,
            "epochs: a tenth after every 350 epochs of images seen; historic: after 350 epochs by one replica's\n"
            "batch, as the tutorial had it until 2018; resnet: at epochs 82, 123 and 300; cosine; constant.\n"
            "Default: the model's, epochs or resnet");
        check([this] {
            if (!o.schedule.empty())
                one_of("--schedule", o.schedule, {"epochs", "historic", "resnet", "cosine", "constant"});
        });
        app.add_option("--lr-scaling", o.rate_scaling,
                       "How the rate follows the global batch, 128 being the base: " + list_of(rate_scalings))
            ->capture_default_str();
        check([this] { one_of("--lr-scaling", o.rate_scaling, rate_scalings); });
        app.add_option("--warm-up-steps", o.warm_up_steps, "Steps over which the learning rate grows to the scaled one")
            ->capture_default_str()
            ->check(count());
        app.add_option("--clip-norm", o.clip_norm, "Largest norm of the gradient; 0 for no limit")
            ->capture_default_str()
            ->check(clip_limit());
        app.add_option("--clip-value", o.clip_value, "Largest magnitude in the gradient; 0 for no limit")
            ->capture_default_str()
            ->check(clip_limit());
        app.add_option("--ema-decay", o.ema_decay, "Decay of the parameters' moving averages; 0 for none")
            ->capture_default_str()
            ->check(rate());
    }

    void add_log() {
        app.add_option("--log-every", o.run.log.every, "Steps between two lines of the log; 0 for none")
            ->capture_default_str()
            ->check(count());
        app.add_option("--log-loss", log_loss,
                       "The loss in the line: mean over the replicas, last replica (as the tutorial printed), or each")
            ->capture_default_str();
        check([this] {
            one_of("--log-loss", log_loss, {"mean", "last", "each"});
            if (log_loss == "last") o.run.log.loss = LossReduction::last_replica;
            if (log_loss == "each") o.run.log.loss = LossReduction::each_replica;
        });
        app.add_flag("--log-learning-rate", o.run.log.learning_rate, "Print the learning rate in the line");
        app.add_flag("--log-parts", o.run.log.parts, "Print each part of the loss in the line, raw and smoothed");
        app.add_flag("--json", o.run.log.json, "Print every line as a JSON object; that of a step has all values");
        app.add_option("--checkpoint-every", o.run.checkpoint_every,
                       "Steps between two checkpoints; 0 for one at the end")
            ->capture_default_str()
            ->check(count())
            ->needs(train_dir);
        app.add_option("--keep-checkpoints", o.run.keep_checkpoints, "Number of the newest checkpoints that are kept")
            ->capture_default_str()
            ->check(whole_number(1, max_replicas))
            ->needs(train_dir);
        app.add_flag("--keep-best", o.run.keep_best,
                     "Evaluate at each checkpoint, and keep the best as model-best.safetensors");
        app.add_option("--summary-every", o.run.summary_every,
                       "Steps between two summaries for TensorBoard; 0 for none")
            ->capture_default_str()
            ->check(count())
            ->needs(train_dir);
    }

    CLI::App& app;
    TrainOptions& o;
    std::vector<std::function<void()>> checks;
    CLI::Option* train_dir = nullptr;
    bool resume = false, resume_anyway = false;
    std::string log_loss = "mean";
};

}  // namespace

int main(int argc, char** argv) {
    TrainOptions options;
    CLI::App app{
        "Trains the network of TensorFlow's CIFAR-10 tutorial, or a ResNet, by several replicas whose gradients are\n"
        "averaged, and prints its accuracy on the test images. Without arguments: one replica, 1000 steps, on a "
        "sample of\n"
        "5,000 training and 1,000 test images.",
        "cifar10_train"};
    Flags flags(app, options);
    return command_line::run(app, argc, argv, [&] {
        flags.check_all();
        return cifar10::train(options);
    });
}
