// SPDX-License-Identifier: Apache-2.0
//
// A collective is given each bucket of the gradient once per step, in the order of the backward pass, and after the queue's mark
// of that bucket.
#include <cupola/net/plan.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "policies.hpp"

namespace {

/// The events on the only device, in order: "mark 0", "give 0".
std::vector<std::string>& events() {
    static std::vector<std::string> list;
    return list;
}

class MarkingQueue : public HostQueue {
public:
    using HostQueue::HostQueue;
    void mark_bucket(std::size_t k) { events().push_back(text("mark ", k)); }
};
struct Marking : Host {
    static constexpr std::string_view name = "Marking";
    using Queue = MarkingQueue;
};
static_assert(QueueingDevice<Marking>);

template <class D>
class GivenSum : public SumAcross<D> {
public:
    using SumAcross<D>::SumAcross;
    void give(int device, typename D::Queue& queue, HostContext& context, std::size_t k, const GradientBucket& bucket,
              const WeightedGradients& rows) {
        events().push_back(text("give ", k));
        SumAcross<D>::give(device, queue, context, k, bucket, rows);
    }
};
struct Given {
    static constexpr std::string_view name = "Given";
    std::int64_t bucket_elements = 64;
    template <class D>
    using Collective = GivenSum<D>;
};

struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, ReLU, Conv2d<4, 3>, ReLU, Flatten, Linear<5>> {};
using Training = DataParallel<Net, CrossEntropy<5>, Sgd, Given, Marking>;

struct Source {
    std::vector<float> pixels = std::vector<float>(4 * 108, 0.25F);
    std::vector<std::int32_t> labels{0, 1, 2, 3};
    /// Batches of the last replica that are empty.
    std::vector<std::int64_t> empty{};
    int last = 0;
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        const bool none = replica == last && std::find(empty.begin(), empty.end(), place) != empty.end();
        return {pixels.data(), labels.data(), none ? 0 : 4, Shape{6, 6, 3}};
    }
};

std::vector<std::string> one_step(std::size_t buckets) {
    std::vector<std::string> expected;
    for (std::size_t k = 0; k < buckets; ++k) expected.push_back(text("mark ", k));
    for (std::size_t k = 0; k < buckets; ++k) expected.push_back(text("give ", k));
    return expected;
}
/// With no backward of the last replica the buckets are marked where they are given.
std::vector<std::string> step_without_last(std::size_t buckets) {
    std::vector<std::string> expected;
    for (std::size_t k = 0; k < buckets; ++k) {
        expected.push_back(text("mark ", k));
        expected.push_back(text("give ", k));
    }
    return expected;
}

}  // namespace

TEST_CASE("the buckets of a plan are ranges from the last element down to the first, each of the requested size") {
    HostContext context(0, {});
    for (const std::int64_t least : {0, 1, 64, 200, 1 << 20}) {
        CAPTURE(least);
        const auto plan = Plan<Host>::make<Net>(context, {.batch = 2, .bucket_elements = least});
        REQUIRE_FALSE(plan.buckets().empty());
        std::int64_t end = Net::parameter_elements;
        for (const GradientBucket& bucket : plan.buckets()) {
            CHECK(bucket.end == end);
            CHECK(bucket.begin < bucket.end);
            if (bucket.begin != 0) CHECK(bucket.end - bucket.begin >= least);
            end = bucket.begin;
        }
        CHECK(end == 0);
        if (least == 0 || least == 1 << 20) CHECK(plan.buckets().size() == 1);
        if (least == 1) CHECK(plan.buckets().size() == 3);  // one per layer with parameters
    }
}

TEST_CASE("a bucket that backward marks as final has its last value, and the rest is computed later") {
    HostContext context(0, {});
    auto plan = Plan<Host>::make<Net>(context, {.batch = 4, .bucket_elements = 1});
    HostArena arena(plan.bytes().total(), "a plan");
    plan.bind(arena.data());
    const std::vector<float> parameters = impl::initial_parameters(Net::layers, 3, {});
    plan.prepare(context, parameters.data());
    const Source source;
    std::vector<float> gradients(parameters.size(), 7.0F), whole = gradients;
    const auto run = [&](std::vector<float>& to, Plan<Host>::BucketReady ready) {
        const float* const logits = plan.forward(context, source.pixels.data(), parameters.data(), {});
        CrossEntropy<5>{}.operation<Host>().forward(context, logits, source.labels.data(), 4, plan.output_gradient());
        plan.backward(context, source.pixels.data(), parameters.data(), to.data(), {}, false, ready);
    };
    run(whole, {});
    std::size_t called = 0;
    const auto check = [&](std::size_t k) {
        CHECK(k == called++);
        const auto [begin, end] = plan.buckets()[k];
        CHECK(std::equal(gradients.begin() + end, gradients.end(), whole.begin() + end));
        // Every parameter of this bucket has its final gradient; the padding is unchanged.
        const auto first = gradients.begin() + begin;
        CHECK(std::count(first, gradients.begin() + end, 7.0F) < 32);
        if (begin > 0) CHECK(std::count(gradients.begin(), first, 7.0F) == begin);
    };
    run(gradients, check);
    CHECK(called == plan.buckets().size());
}

TEST_CASE("each step marks and passes every bucket once, also a repeated step or one without a last batch") {
    for (const int replicas : {1, 3}) {
        for (const int parts : {1, 2}) {
            CAPTURES(replicas, parts);
            Training training({.replicas = replicas, .batch_size = 4, .gradient_accumulation_steps = parts});
            Source source;
            source.last = replicas - 1;
            const auto step = [&] {
                events().clear();
                training.step(source);
                return events();
            };
            constexpr std::size_t buckets = 3;
            CHECK(step() == one_step(buckets));
            const TrainingState state = training.state();
            CHECK(step() == one_step(buckets));
            training.restore(state);  // step 1 again, and now without the last batch of the last replica
            source.empty = {1 * parts + parts - 1};
            if (replicas * parts == 1) continue;  // a step has samples
            CHECK(step() == step_without_last(buckets));
            source.empty.clear();
            CHECK(step() == one_step(buckets));
        }
    }
}
