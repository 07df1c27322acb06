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
