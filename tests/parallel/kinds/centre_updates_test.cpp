// SPDX-License-Identifier: Apache-2.0
#include <cupola/parallel/kinds/centre_updates.hpp>

#include "../../test.hpp"

#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/nesterov_velocity.hpp>
#include <cupola/optim/sgd.hpp>

#include "../../devices.hpp"
#include "../../ops/operation_run.hpp"
#include "../../reference/compare.hpp"
#include "rules.hpp"

using namespace cupola;
using reference::Floats;

namespace {

/// Arenas on a device, of which two segments with padding around them are updated.
template <class D>
struct Arenas {
    static constexpr std::int64_t elements = 80;
    [[nodiscard]] static bool is_parameter(std::size_t i) { return (i >= 4 && i < 20) || (i >= 25 && i < 62); }

    template <class O>
    Floats apply(const O& optimizer, const Floats& parameters, const Floats& gradient, const Floats& state) {
        typename D::Context context(0, device_options<D>(1));
        [[maybe_unused]] const auto team = context.team();
        operation_run::Guarded<D> w(context, parameters), g(context, gradient), s(context, state);
        impl::update_by_formula(optimizer, Update<D>{.context = context,
                                                     .parameters = w.data(),
                                                     .gradient = g.data(),
                                                     .state = s.data(),
                                                     .elements = elements,
                                                     .segments = segments});
        CHECK(g.read() == gradient);
        CHECK(s.read() == state);
        CHECK(w.guards_intact());
        return w.read();
    }

    std::vector<Segment> segments{{.offset = 4, .size = 16, .rank = 4},
                                  {.offset = 25, .size = 37, .l2 = 0.5, .rank = 1, .rate_factor = 3}};
};

/// Replicas of three parameters on one device, which agree by the updates of this header. The mean of the rows is that of
/// a loop on the processor, in the order of the replicas; a training has an averaging in its place.
template <class D>
class Replicas {
public:
    explicit Replicas(const rules::Settings& settings)
        : settings_(settings),
          context_(0, device_options<D>(1)),
          optimizer_{.learning_rate = settings.rate,
                     .momentum = rules::has_momentum(settings.rule) ? settings.momentum : 0.0},
          outer_{.learning_rate = settings.outer_rate, .momentum = settings.outer_momentum, .nesterov = true},
          centre_(context_, start()),
          outer_state_(context_, Floats(3)),
          mean_(context_, Floats(3)) {
        for (int r = 0; r < settings.replicas; ++r) {
            x_.push_back(std::make_unique<operation_run::Guarded<D>>(context_, start()));
            v_.push_back(std::make_unique<operation_run::Guarded<D>>(context_, Floats(3)));
            rows_.push_back(std::make_unique<operation_run::Guarded<D>>(context_, Floats(3)));
        }
    }

    void step() {
        [[maybe_unused]] const auto team = context_.team();
        const bool elastic = rules::is_elastic(settings_.rule) && step_ % settings_.every == 0;
        for (std::size_t r = 0; r < x_.size(); ++r) {
            const Floats w = x_[r]->read();
            Floats gradient;
            for (std::size_t j = 0; j < 3; ++j) {
                gradient.push_back(
                    static_cast<float>(quadratic_.gradient(static_cast<double>(w[j]), static_cast<int>(r), step_, j)));
            }
            rows_[r]->write(gradient);
            const auto update = update_of(*x_[r], *rows_[r], *v_[r], step_);
            if (elastic) {
                update_parameters(
                    optimizer_, update,
                    {.centre = centre_.data(), .difference = rows_[r]->data(), .moving_rate = settings_.moving_rate});
            } else {
                update_parameters(optimizer_, update);
            }
        }
        ++step_;
        if (elastic) {
            average();
            impl::update_by_formula(MoveCentre(settings_.replicas * settings_.moving_rate),
                                    update_of(centre_, mean_, outer_state_, 0));
        }
        if (rules::is_elastic(settings_.rule) || step_ % settings_.every != 0) return;
        for (std::size_t r = 0; r < x_.size(); ++r)
            impl::update_by_formula(TakeDifferences{}, update_of(*rows_[r], *x_[r], centre_, 0));
        average();
        const auto of_centre = update_of(centre_, mean_, outer_state_, step_ / settings_.every - 1);
        if (settings_.rule == rules::Rule::diloco) {
            update_parameters(outer_, outer_update(of_centre));
        } else {
            impl::update_by_formula(MoveCentre(1), of_centre);
        }
        for (auto& x : x_) impl::update_by_formula(TakeCentre{}, update_of(*x, centre_, outer_state_, 0));
    }

    [[nodiscard]] Floats centre() { return centre_.read(); }
    /// The position that it exchanges.
    [[nodiscard]] Floats replica(std::size_t r) {
        Floats result = x_[r]->read();
        const Floats v = v_[r]->read();
        for (std::size_t j = 0; j < 3; ++j) result[j] -= static_cast<float>(optimizer_.momentum) * v[j];
        return result;
    }

private:
    Update<D> update_of(operation_run::Guarded<D>& w, operation_run::Guarded<D>& g, operation_run::Guarded<D>& state,
                        std::int64_t step) {
        return {.context = context_,
                .parameters = w.data(),
                .gradient = g.data(),
                .state = state.data(),
                .elements = 3,
                .segments = segments_,
                .step = step};
    }
    void average() {
        Floats sum(3);
        for (auto& row : rows_) {
            const Floats values = row->read();
            for (std::size_t j = 0; j < 3; ++j) sum[j] += values[j] / static_cast<float>(x_.size());
        }
        mean_.write(sum);
    }
    Floats start() const { return {quadratic_.start.begin(), quadratic_.start.end()}; }

    rules::Quadratic quadratic_;
    rules::Settings settings_;
    typename D::Context context_;
    NesterovVelocity optimizer_;
    Sgd outer_;
    operation_run::Guarded<D> centre_, outer_state_, mean_;
    std::vector<std::unique_ptr<operation_run::Guarded<D>>> x_, v_, rows_;
    std::vector<Segment> segments_{{.size = 3}};
    int step_ = 0;
};

}  // namespace

TYPED_TEST_CASE("differences, the centre's moves and copies of it are those of plain loops, in the segments", D,
                Devices) {
    Arenas<D> arenas;
    const Floats a = reference::Random(1).normal(80), b = reference::Random(2).normal(80),
                 c = reference::Random(3).normal(80);
    const Floats difference = arenas.apply(TakeDifferences{}, a, b, c), none{0},
                 moved = arenas.apply(MoveCentre(0.25), a, b, none), added = arenas.apply(MoveCentre(1), a, b, none),
                 copied = arenas.apply(TakeCentre{}, a, b, none);
    for (std::size_t i = 0; i < 80; ++i) {
        CAPTURE(i);
        if (!Arenas<D>::is_parameter(i)) {
            for (const Floats* result : {&difference, &moved, &added, &copied}) CHECK((*result)[i] == a[i]);
            continue;
        }
        CHECK(difference[i] == b[i] - c[i]);
        CHECK(static_cast<double>(moved[i]) ==
              doctest::Approx(static_cast<double>(a[i]) + 0.25 * static_cast<double>(b[i])).epsilon(1e-6));
        CHECK(added[i] == a[i] + b[i]);
        CHECK(copied[i] == b[i]);
    }
}

TYPED_TEST_CASE("a hundred steps by these updates are the rules in double", D, Devices) {
    for (const rules::Rule rule :
         {rules::Rule::local_sgd, rules::Rule::diloco, rules::Rule::easgd, rules::Rule::eamsgd}) {
        for (const int every : {1, 3, 16}) {
            for (int replicas = 1; replicas <= 5; ++replicas) {
                CAPTURES(rules::name_of(rule), every, replicas);
                const rules::Settings settings = rules::golden_settings(rule, replicas, every);
                rules::Training expected(settings);
                Replicas<D> training(settings);
                double largest = 0, error = 0;
                const auto compare = [&](const rules::Point& point, const Floats& values) {
                    for (std::size_t j = 0; j < 3; ++j)
                        error = std::max(error, std::abs(point[j] - static_cast<double>(values[j])));
                };
                for (int step = 0; step < 100; ++step) {
                    expected.step();
                    training.step();
                    largest = std::max(largest, rules::magnitude(expected));
                    compare(expected.centre, training.centre());
                    compare(expected.x.back(), training.replica(expected.x.size() - 1));
                }
                CHECK(error < 1e-6 * largest);
            }
        }
    }
}

TYPED_TEST_CASE("an outer Sgd of rate 1 has the bits of local SGD", D, Devices) {
    Arenas<D> arenas;
    arenas.segments = outer_segments(arenas.segments);
    const Floats centre = reference::Random(1).normal(80), mean = reference::Random(2).normal(80);
    typename D::Context context(0, device_options<D>(1));
    [[maybe_unused]] const auto team = context.team();
    operation_run::Guarded<D> w(context, centre), g(context, mean);
    update_parameters(Sgd{.learning_rate = 1}, outer_update(Update<D>{.context = context,
                                                                      .parameters = w.data(),
                                                                      .gradient = g.data(),
                                                                      .elements = Arenas<D>::elements,
                                                                      .segments = arenas.segments}));
    CHECK(reference::same_bits(w.read(), arenas.apply(MoveCentre(1), centre, mean, Floats{0})));
}

TEST_CASE("an outer update has the segments without regularisers and factors, and turns the sign once") {
    const std::vector<Segment> segments{{.offset = 4, .size = 16, .l2 = 0.5, .rank = 4, .rate_factor = 3},
                                        {.offset = 32, .size = 7, .rank = 1, .decay_factor = 0}};
    const auto outer = outer_segments(segments);
    REQUIRE(outer.size() == 2);
    CHECK(outer[0].updates_like({}));
    CHECK(outer[1].updates_like({}));
    CHECK(outer[0].offset == 4);
    CHECK(outer[1].size == 7);
    CHECK(outer[1].rank == 1);
    typename AnyDevice::Context context(0, device_options<AnyDevice>(1));
    CHECK(outer_update(Update<AnyDevice>{.context = context, .segments = segments}).scale == -1.0F);
}
