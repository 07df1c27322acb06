// SPDX-License-Identifier: Apache-2.0
//
// The loops with which the rules of replicas are compared, themselves compared with golden figures, matrices and theory.
#include "parallel/kinds/rules.hpp"

#include "test.hpp"

#include <cupola/parallel/kinds/moving_rate.hpp>

#include "golden/golden.hpp"

using namespace rules;

namespace {

constexpr int replica_counts[] = {1, 2, 3, 4, 5}, periods[] = {1, 3, 16};

double distance(const Point& a, std::span<const double> b) {
    double result = 0;
    for (std::size_t j = 0; j < coordinates; ++j) result = std::max(result, std::abs(a[j] - b[j]));
    return result;
}

/// Checks that the spectral radius passes 1 at the bound, to 1e-9, and is at most 1 below it.
template <class Make>
void check_bound(const Make& cycle_at, double bound) {
    CAPTURE(bound);
    CHECK(spectral_radius(cycle_at(bound - 1e-9)) < 1);
    CHECK(spectral_radius(cycle_at(bound + 1e-9)) > 1);
    for (const double part : {0.125, 0.5, 0.9}) CHECK(spectral_radius(cycle_at(bound * part)) < 1);
}

}  // namespace

TEST_CASE("a hundred steps of each rule end at the golden figures, and one run passes through them") {
    const auto cases = golden::cases("replica_rules");
    REQUIRE(cases.size() == std::size(all));
    for (std::size_t k = 0; k < cases.size(); ++k) {
        const golden::Case& golden = cases[k];
        CAPTURE(golden.name());
        CHECK(golden.name() == name_of(all[k]));
        const auto centres = golden.list<double>("centre"), last = golden.list<double>("last_replica"),
                   trace = golden.list<double>("trace");
        std::size_t run = 0;
        for (const int every : periods) {
            for (const int replicas : replica_counts) {
                CAPTURES(every, replicas);
                CHECK(golden.list<std::int64_t>("periods")[run / 5] == every);
                CHECK(golden.list<std::int64_t>("replicas")[run % 5] == replicas);
                Training training(golden_settings(all[k], replicas, every));
                double largest = 0;
                for (std::size_t step = 0; step < 100; ++step) {
                    training.step();
                    largest = std::max(largest, magnitude(training));
                    if (replicas == 4 && every == 3)
                        CHECK(distance(training.centre, trace.subspan(3 * step, 3)) < 1e-12 * largest);
                }
                CHECK(distance(training.centre, centres.subspan(3 * run, 3)) < 1e-12 * largest);
                CHECK(distance(training.x.back(), last.subspan(3 * run, 3)) < 1e-12 * largest);
                ++run;
            }
        }
    }
}

TEST_CASE("without targets the loops are powers of the matrices of one cycle") {
    const Quadratic homogeneous{.targets = false};
    for (const Rule rule : all) {
        for (const int every : periods) {
            for (const int replicas : replica_counts) {
                CAPTURES(name_of(rule), every, replicas);
                const Settings settings = golden_settings(rule, replicas, every);
                const auto p = static_cast<std::size_t>(replicas);
                Training training(settings, homogeneous);
                double largest = 0;
                for (int step = 0; step < 6 * every; ++step) {
                    training.step();
                    largest = std::max(largest, magnitude(training));
                }
                for (std::size_t j = 0; j < coordinates; ++j) {
                    const double shrink = settings.rate * homogeneous.curvature[j], start = homogeneous.start[j],
                                 moved = 1 - std::pow(1 - shrink, every);
                    std::vector<double> expected;
                    if (is_elastic(rule)) {
                        std::vector<double> state(2 * p + 1, start);
                        std::fill_n(state.begin() + replicas, replicas, 0.0);
                        expected = power(cycle(settings, shrink), 6) * state;
                        for (std::size_t r = 0; r < p; ++r) {
                            CHECK(std::abs(training.x[r][j] - expected[r]) < 1e-12 * largest);
                            CHECK(std::abs(training.v[r][j] - expected[p + r]) < 1e-12 * largest);
                        }
                    } else if (rule == Rule::downpour) {
                        expected = power(downpour_cycle(replicas, moved), 6) * std::vector<double>(p + 1, start);
                        CHECK(std::abs(training.x.front()[j] - expected.front()) < 1e-12 * largest);
                    } else {
                        const auto result = power(outer_cycle(settings, moved), 6) * std::vector<double>{start, 0};
                        expected = {result[0]};
                    }
                    CHECK(std::abs(training.centre[j] - expected.back()) < 1e-12 * largest);
                }
            }
        }
    }
}

TEST_CASE("synchronous elastic averaging is stable below its closed form, to 1e-9") {
    for (const int every : periods) {
        for (const double shrink : {0.1, 0.5, 1.0, 1.5}) {
            if (shrink == 1.0 && every > 1) continue;  // a replica forgets everything in a step: eigenvalues of 0
            for (const int replicas : replica_counts) {
                CAPTURES(every, shrink, replicas);
                Settings settings{.rule = Rule::easgd, .replicas = replicas, .every = every};
                check_bound(
                    [&](double alpha) {
                        settings.moving_rate = alpha;
                        return cycle(settings, shrink);
                    },
                    synchronous_bound(replicas, every, shrink));
            }
        }
    }
    CHECK(synchronous_bound(4, 3, 0.1) == doctest::Approx(0.405108).epsilon(1e-6));
}

TEST_CASE("asynchronous elastic averaging is stable below the paper's bound: exactly for odd numbers of replicas") {
    for (const double shrink : {0.1, 0.5, 1.0, 1.5}) {
        const double bound = asynchronous_bound(shrink);
        for (const int replicas : replica_counts) {
            CAPTURES(shrink, replicas);
            Settings settings{.rule = Rule::asynchronous_easgd, .replicas = replicas};
            const auto cycle_at = [&](double alpha) {
                settings.moving_rate = alpha;
                return cycle(settings, shrink);
            };
            if (replicas % 2 == 1) {
                check_bound(cycle_at, bound);
            } else {
                for (const double part : {0.125, 0.5, 1.0}) CHECK(spectral_radius(cycle_at(bound * part)) < 1);
            }
        }
        // One exchange is a symmetric matrix, so its norm is its spectral radius: below the bound no order of exchanges grows.
        const auto one = [&](double alpha) {
            Matrix result(2);
            result(0, 0) = 1 - shrink - alpha;
            result(0, 1) = result(1, 0) = alpha;
            result(1, 1) = 1 - alpha;
            return result;
        };
        check_bound(one, bound);
    }
    // Round robin of two is stable a little further, and one of the two alone is not.
    Settings two{.rule = Rule::asynchronous_easgd, .replicas = 2, .moving_rate = 0.69}, alone = two;
    alone.replicas = 1;
    CHECK(spectral_radius(cycle(two, 1)) == doctest::Approx(0.973030).epsilon(1e-6));
    CHECK(spectral_radius(cycle(alone, 1)) == doctest::Approx(1.042115).epsilon(1e-6));
    check_bound(
        [&](double alpha) {
            two.moving_rate = alpha;
            return cycle(two, 1);
        },
        std::sqrt(0.5));
}

TEST_CASE("as the rate goes to 0 the bounds are those of the warnings, for every period") {
    for (const int replicas : replica_counts) {
        for (const int every : periods)
            CHECK(synchronous_bound(replicas, every, 1e-8) ==
                  doctest::Approx(cupola::synchronous_moving_rate_bound(replicas)).epsilon(1e-6));
    }
    CHECK(asynchronous_bound(1e-8) == doctest::Approx(cupola::asynchronous_moving_rate_bound()).epsilon(1e-6));
}

TEST_CASE("EAMSGD has the bounds that were found numerically") {
    const auto check = [](Rule rule, double momentum, double shrink, double bound) {
        CAPTURES(name_of(rule), momentum, shrink, bound);
        Settings settings{.rule = rule, .replicas = 4, .momentum = momentum};
        settings.moving_rate = bound - 1e-4;
        CHECK(spectral_radius(cycle(settings, shrink)) < 1);
        settings.moving_rate = bound + 1e-4;
        CHECK(spectral_radius(cycle(settings, shrink)) > 1);
    };
    check(Rule::eamsgd, 0.99, 0.01, 0.3998);
    check(Rule::eamsgd, 0.9, 0.1, 0.3977);
    check(Rule::asynchronous_eamsgd, 0.99, 0.01, 0.9964);
    check(Rule::asynchronous_eamsgd, 0.9, 0.1, 0.9694);
}

TEST_CASE("DOWNPOUR and DiLoCo are stable below their closed forms, to 1e-9") {
    for (const int replicas : replica_counts) {
        CAPTURE(replicas);
        check_bound([&](double moved) { return downpour_cycle(replicas, moved); }, downpour_bound(replicas));
    }
    CHECK(downpour_bound(4) == doctest::Approx(0.445042).epsilon(1e-6));
    for (const double momentum : {0.0, 0.5, 0.9}) {
        for (const int every : {1, 16, 64}) {
            const double moved = 1 - std::pow(0.9, every);
            CAPTURES(momentum, every);
            Settings settings{.rule = Rule::diloco, .outer_momentum = momentum};
            check_bound(
                [&](double rate) {
                    settings.outer_rate = rate;
                    return outer_cycle(settings, moved);
                },
                diloco_bound(momentum, moved));
        }
    }
}

TEST_CASE("DiLoCo with an outer rate of 1 and no momentum is local SGD, and one replica alone is its own mean") {
    for (const int every : periods) {
        Settings outer = golden_settings(Rule::diloco, 3, every);
        outer.outer_rate = 1;
        outer.outer_momentum = 0;
        Training diloco(outer), local(golden_settings(Rule::local_sgd, 3, every));
        for (int step = 0; step < 48; ++step) {
            diloco.step();
            local.step();
            CHECK(distance(diloco.centre, local.centre) < 1e-15);
        }
    }
}

TEST_CASE("without momentum EAMSGD is EASGD, and replicas in another order are another asynchronous run") {
    Settings settings = golden_settings(Rule::asynchronous_eamsgd, 3, 3);
    settings.momentum = 0;
    Training momentum(settings), plain(golden_settings(Rule::asynchronous_easgd, 3, 3)), other = plain;
    for (int step = 0; step < 10; ++step) {
        momentum.step();
        plain.step();
        for (const int r : {2, 0, 1}) other.batch(r);
        CHECK(momentum.centre == plain.centre);
    }
    CHECK(distance(other.centre, plain.centre) > 1e-4);
    CHECK(other.batches == plain.batches);
}
