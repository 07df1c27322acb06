// SPDX-License-Identifier: Apache-2.0

// case: averaging_without_average
// expect: Mean is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, std::span<float>) const`
struct Mean {
    static constexpr std::string_view name = "mean";
    /* wrong */ void mean(HostContext&, const GradientRows&, std::span<float>) const {}
    /* right */ void average(HostContext&, const GradientRows&, std::span<float>) const {}
};

// fit: Net, CrossEntropy<3>, Sgd, Mean

// case: averaging_without_name
// An averaging policy that the log could not name.
// expect: Mean is not an averaging policy: it lacks `static constexpr std::string_view name`
struct Mean {
    /* right */ static constexpr std::string_view name = "mean";
    void average(HostContext&, const GradientRows&, std::span<float>) const {}
};

// fit: Net, CrossEntropy<3>, Sgd, Mean

// case: compressed_in_float
// expect: Compressed moves gradients in BFloat16, not in float
// case: compressed_twice
// expect: Compressed cannot wrap Compressed<ConcatMean, bfloat16>, whose gradients are compressed already
// case: compressed_without_average
// expect: Middle is not an averaging policy on Host: it lacks `void average(Context&, const GradientRows&, std::span<float>) const`
// case: nccl_on_host
// expect: NcclAllReduce needs a device that NCCL supports, and Host is not one: use ConcatMean instead
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
struct Middle {
    static constexpr std::string_view name = "middle";
    void middle(HostContext&, const GradientRows&, std::span<float>) const {}
};

/* wrong compressed_in_float */ using Averaging = Compressed<ConcatMean, float>;
/* wrong compressed_twice */ using Averaging = Compressed<Compressed<ConcatMean>>;
/* wrong compressed_without_average */ using Averaging = Compressed<Middle>;
/* wrong nccl_on_host */ using Averaging = NcclAllReduce;
/* right */ using Averaging = Compressed<ConcatMean>;

// fit: Net, CrossEntropy<3>, Sgd, Averaging

// case: periodic_in_periodic
// expect: Periodic cannot be around Periodic, which agrees on a centre itself: give it a policy that averages gradients
// case: compressed_around_periodic
// expect: Compressed moves gradients, and Periodic agrees on a centre: put Compressed inside it
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

/* wrong periodic_in_periodic */ using Averaging = Periodic<Periodic<ConcatMean>>;
/* wrong compressed_around_periodic */ using Averaging = Compressed<Periodic<ConcatMean>>;
/* right */ using Averaging = Periodic<Compressed<ConcatMean>>;

// fit: Net, CrossEntropy<3>, Sgd, Averaging

// case: elastic_training_without_formula
// expect: Slope takes no elastic force: its `update` is no formula of one element, and it lacks `void update(const Update<Device>&, const ElasticForce&) const`
#include <cupola/parallel/kinds/elastic_averaging.hpp>
struct Slope {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    [[nodiscard]] std::string description() const { return "slope"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Device>
    void update(const Update<Device>&) const {}
};

/* wrong */ using Averaging = ElasticAveraging<ConcatMean>;
/* right */ using Averaging = ConcatMean;

// fit: Net, CrossEntropy<3>, Slope, Averaging

// case: collective_in_one_of
// expect: OneOf cannot choose DeviceSum, which is no function of the gradient rows, and agrees on no centre
// case: two_carriers_in_one_of
// expect: OneOf cannot choose between policies by ConcatMean and by Compressed<ConcatMean, bfloat16>: give it those of one
// case: centre_by_a_collective_without_numbers
// expect: Periodic cannot be around DeviceSum, whose collective has no all_reduce_number() (parallel/agreement.hpp)
#include <cupola/parallel/agreement/collective_agreement.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
struct DeviceSum {
    static constexpr std::string_view name = "DeviceSum";
    template <class D>
    struct Collective {
        Collective(const DeviceSum&, const CollectiveSetup&) {}
        static std::int64_t bucket_elements(const DeviceSum&) { return 0; }
        static ProcessNumber process(const DeviceSum&) { return {}; }
        void join(int, auto&, auto&, const RankBlocks&) {}
        void begin(int, auto&, auto&, const StepShape&) {}
        void give(int, auto&, auto&, std::size_t, const GradientBucket&, const WeightedGradients&) {}
        GradientSums finish(int, auto&, auto&) { return {}; }
        void wait(int, auto&, std::int64_t, bool) {}
        void break_off(int, std::int64_t, const std::string&) noexcept {}
        void end(int, auto&) {}
        [[nodiscard]] bool healthy() const { return true; }
    };
};

/* wrong collective_in_one_of */ using Averaging = OneOf<ConcatMean, DeviceSum>;
/* wrong two_carriers_in_one_of */ using Averaging = OneOf<ConcatMean, Compressed<ConcatMean>>;
/* wrong centre_by_a_collective_without_numbers */ using Averaging = Periodic<DeviceSum>;
/* right */ using Averaging = OneOf<ConcatMean>;

// fit: Net, CrossEntropy<3>, Sgd, Averaging

// case: asynchronous_on_a_gpu
// expect: Asynchronous exchanges in the host's memory, and Gpu has its own: use Host, or Periodic or ElasticAveraging
// case: downpour_on_a_gpu
// expect: Asynchronous exchanges in the host's memory, and Card has its own: use Host, or Periodic or ElasticAveraging
// case: hogwild_on_a_gpu
// expect: Hogwild exchanges in the host's memory, and Gpu has its own: use Host, or Periodic or ElasticAveraging
// case: backup_on_a_gpu
// expect: Backup exchanges in the host's memory, and Gpu has its own: use Host, or Periodic or ElasticAveraging
// case: asynchronous_without_a_rule
// expect: Asynchronous needs a rule with `exchange(replicas)` and `description()`, such as Elastic or Downpour, and ConcatMean is none
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
struct Gpu : Host {
    static constexpr std::string_view name = "Gpu";
    static constexpr bool host_memory = false;
};
struct Card : Gpu {
    static constexpr std::string_view name = "Card";
};

/* wrong asynchronous_on_a_gpu */ using Averaging = Asynchronous<Elastic>;
/* wrong asynchronous_on_a_gpu */ using Place = Gpu;
/* wrong downpour_on_a_gpu */ using Averaging = Asynchronous<Downpour>;
/* wrong downpour_on_a_gpu */ using Place = Card;
/* wrong hogwild_on_a_gpu */ using Averaging = Hogwild;
/* wrong hogwild_on_a_gpu */ using Place = Gpu;
/* wrong backup_on_a_gpu */ using Averaging = Backup;
/* wrong backup_on_a_gpu */ using Place = Gpu;
/* wrong asynchronous_without_a_rule */ using Averaging = Asynchronous<ConcatMean>;
/* wrong asynchronous_without_a_rule */ using Place = Host;
/* right */ using Averaging = Asynchronous<Elastic>;
/* right */ using Place = Host;

static_assert(static_assert_message<agreement_diagnostic<Averaging, Place>()>());

// case: synchronized_statistics_asynchronous
// expect: Synchronized synchronizes the replicas inside a pass, and with Asynchronous no replica waits for another: use FirstReplica, LastReplica, AllReplicas or Pooled
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/synchronized.hpp>
struct Normed : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, BatchNorm2d<>, Flatten, Linear<3>> {};

/* wrong */ using Statistics = Synchronized;
/* right */ using Statistics = Pooled;
using Training = DataParallel<Normed, CrossEntropy<3>, Sgd, Asynchronous<Downpour>, Host, Statistics>;

static_assert(sizeof(Training) > 0);

// case: asynchronous_with_temporary_batches
// expect: asynchronous replicas call the source of batches until the report of the step has been read, and this one is a temporary: keep it in a variable, or use step()
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
using Training = DataParallel<Net, CrossEntropy<3>, Sgd, OneOf<ConcatMean, Hogwild>, Host>;

void train(Training& training, const BatchView& batch) {
    const auto batches = [&](std::int64_t, int, HostContext&) { return batch; };
    training.step([&](std::int64_t, int, HostContext&) { return batch; });
    /* wrong */ training.queue([&](std::int64_t, int, HostContext&) { return batch; });
    /* right */ training.queue(batches);
    training.queue([&](std::int64_t, int, HostContext&) { return batch; }, [](const Training::InspectionType&) {});
}

// case: nccl_without_its_header
// expect: NcclAllReduce on Gpu needs #include <cupola/nccl.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
struct Gpu : Host {
    static constexpr std::string_view name = "Gpu";
    static constexpr bool has_nccl = true;
};

/* wrong */ using Averaging = NcclAllReduce;
/* right */ using Averaging = ConcatMean;

static_assert(static_assert_message<agreement_diagnostic<Averaging, Gpu>()>());
