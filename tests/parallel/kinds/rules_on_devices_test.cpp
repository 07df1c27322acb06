// SPDX-License-Identifier: Apache-2.0
//
// The rules by which replicas agree on a centre, in a training on each device, against the loops of rules.hpp.
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "../../test.hpp"

#include "../../devices.hpp"
#include "kind_training.hpp"

using namespace cupola;

TEST_CASE_TEMPLATE_DEFINE("each rule moves the centre as its loop in double, for any number of replicas and period", D,
                          rules_in_training) {
    for (const int every : {1, 3, 16}) {
        for (int replicas = 1; replicas <= 5; ++replicas) {
            CAPTURE(every);
            CAPTURE(replicas);
            rules::for_each_kind<ConcatMean>(every, [&](rules::Rule rule, const auto& averaging) {
                CAPTURE(rules::name_of(rule));
                const auto settings = rules::golden_settings(rule, replicas, every);
                CHECK(rules::error_of<D>(settings, averaging, 1) < 1e-6);
                // On Host centre_agreement_test.cpp compares the bits of several devices.
                if (!D::host_memory && replicas == 5 && every == 3)
                    CHECK(rules::error_of<D>(settings, averaging, 2) < 1e-6);
            });
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(rules_in_training, Devices);

TEST_CASE_TEMPLATE_DEFINE("fragments agree at steps of their own and move the centre later, as the loop in double", D,
                          streaming_in_training) {
    struct Numbers {
        int every, fragments, delay;
        double mix;
    };
    for (const Numbers& n :
         {Numbers{16, 1, 5, 0}, Numbers{16, 1, 15, 0.5}, Numbers{16, 2, 0, 0}, Numbers{16, 3, 4, 0.5},
          Numbers{7, 3, 1, 0}, Numbers{3, 3, 0, 0.25}, Numbers{2, 1, 1, 0}}) {
        for (int replicas = 1; replicas <= 4; ++replicas) {
            // An emulated device takes its time.
            if (!D::host_memory && replicas != 1 + n.every % 4) continue;
            const int steps = 3 * n.every;
            CAPTURE(n.every);
            CAPTURE(n.fragments);
            CAPTURE(n.delay);
            CAPTURE(replicas);
            const auto check = [&](rules::Rule rule, auto averaging) {
                CAPTURE(rules::name_of(rule));
                rules::Settings settings = rules::golden_settings(rule, replicas, n.every);
                averaging.every = n.every;
                averaging.fragments = settings.fragments = n.fragments;
                averaging.delay = settings.delay = n.delay;
                averaging.mix = settings.mix = n.mix;
                // So that it stays bounded with a mean that is late.
                settings.outer_rate = 0.3, settings.outer_momentum = 0.5;
                if constexpr (requires { averaging.outer.momentum; })
                    averaging.outer.learning_rate = 0.3, averaging.outer.momentum = 0.5;
                CHECK(rules::error_of<D>(settings, averaging, 1, steps) < 1e-6);
                if (replicas == 4) CHECK(rules::error_of<D>(settings, averaging, 2, steps) < 1e-6);
            };
            check(rules::Rule::local_sgd, Periodic<ConcatMean>{});
            check(rules::Rule::diloco, Periodic<ConcatMean, Sgd>{.outer = rules::outer_sgd()});
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(streaming_in_training, Devices);
