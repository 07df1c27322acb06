// SPDX-License-Identifier: Apache-2.0
//
// A training does one thing at a time, in the process that made it: any other call is an error at once.
//
// Covers: cupola/parallel/data_parallel.hpp
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "child_process.hpp"
#include "sanitized.hpp"
#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<4>, Linear<3>> {};
using Training = DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host>;

struct Samples {
    std::vector<float> values = std::vector<float>(16, 0.5F);
    std::vector<std::int32_t> labels{0, 1, 2, 0};
    [[nodiscard]] BatchView view() const { return {values.data(), labels.data(), 4, Shape{4}}; }
};

std::string refused(const auto& call) { return message_of<InvalidArgument>(call); }

}  // namespace

TEST_CASE("a call from inside another is rejected, and the training continues") {
    const Samples samples;
    for (const int devices : {1, 2}) {
        Training training({.replicas = 2, .devices = devices, .batch_size = 4});
        const auto batches = [&](std::int64_t, int, HostContext&) { return samples.view(); };
        CHECK(contains(
            refused([&] { training.step(batches, [&](const Inspection<Host>&) { training.evaluate(batches, 1); }); }),
            "evaluate() was called while step() is in progress"));
        CHECK(training.step() == 1);  // an inspector's exception comes after the step
        CHECK(contains(refused([&] {
                           training.step([&](std::int64_t step, int replica, HostContext& context) {
                               training.step(batches);
                               return batches(step, replica, context);
                           });
                       }),
                       "step() was called while step() is in progress"));
        CHECK(contains(refused([&] {
                           training.evaluate(
                               [&](std::int64_t, int, HostContext&) {
                                   (void)training.parameters();
                                   return samples.view();
                               },
                               1);
                       }),
                       "parameters() was called while evaluate() is in progress"));
        CHECK(training.step() == 1);
        CHECK(training.healthy());
        training.step(batches);
        CHECK(training.step() == 2);
        CHECK(training.evaluate(batches, 2).samples == 8);
    }
}

TEST_CASE("a call from a second thread is rejected while one is in progress") {
    const Samples samples;
    Training training({.batch_size = 4});
    std::atomic<bool> inside = false, go_on = false;
    std::thread first([&] {
        training.step([&](std::int64_t, int, HostContext&) {
            inside = true;
            while (!go_on) std::this_thread::yield();
            return samples.view();
        });
    });
    while (!inside) std::this_thread::yield();
    CHECK(contains(refused([&] { (void)training.state(); }), "state() was called while step() is in progress"));
    go_on = true;
    first.join();
    CHECK(training.state().step == 1);
}

// ThreadSanitizer ends a child that detaches threads which it does not have.
TEST_CASE("a call in a child of fork() is rejected, and the child ends" * doctest::skip(thread_sanitized)) {
    const Samples samples;
    Training training({.batch_size = 4});
    const auto batches = [&](std::int64_t, int, HostContext&) { return samples.view(); };
    training.step(batches);
    CHECK(wait_status_of([&] {
              const std::string error = message_of<InvalidArgument>([&] { training.step(batches); });
              training.~Training();  // as the end of its scope would
              _exit(contains(error, "step() was called in a child of the process that made this training") ? 0 : 1);
          }) == 0);
    training.step(batches);
    CHECK(training.step() == 2);
}
