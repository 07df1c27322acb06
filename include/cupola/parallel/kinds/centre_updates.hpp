// SPDX-License-Identifier: Apache-2.0
//
// The updates of an agreement between replicas that have parameters x of their own and a common centre c. The rows of
// gradients, which are free after the update, take the differences d = x - c of the replicas; their mean m, which an
// averaging computes as it computes that of gradients, moves the centre:
//
//   local SGD            d = x - c,    c = c + m,                      x = c
//   DiLoCo               d = x - c,    c = Outer(c, gradient -m),      x = c
//   elastic averaging    d by the update with a force,    c = c + p * moving_rate * m    for p replicas
//
// Each is an optimiser by a formula, so every device has its loop, a GPU leaves it out once the training is no longer
// healthy, and it changes the segments of an update alone: padding and frozen parameters keep their values.
// impl::update_by_formula(TakeDifferences{}, u) applies it, and impl::write_constants_by_formula writes its constants
// for a step that a GPU repeats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/ops/element_update.hpp>
#include <cupola/ops/gradient_terms.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct DifferenceFormula {
    using Gradient = UnchangedGradient;
    CUPOLA_HOST_DEVICE void operator()(float& difference, float x, float centre) const { difference = x - centre; }
};

struct MoveCentreFormula {
    using Gradient = UnchangedGradient;
    float factor;

    CUPOLA_HOST_DEVICE void operator()(float& centre, float mean) const { centre += factor * mean; }
};

struct TakeCentreFormula {
    using Gradient = UnchangedGradient;
    CUPOLA_HOST_DEVICE void operator()(float& x, float centre) const { x = centre; }
};

struct MixCentreFormula {
    using Gradient = UnchangedGradient;
    float mix;

    CUPOLA_HOST_DEVICE void operator()(float& x, float centre) const { x = mix * x + (1 - mix) * centre; }
};

/// An optimiser whose formula is the same in each step and segment.
template <class Formula>
struct FixedFormula {
    Formula of_element{};

    [[nodiscard]] int state_arenas() const { return static_cast<int>(formula_states<Formula>); }
    [[nodiscard]] bool keeps_zeros() const { return true; }
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        apply(of_element);
    }
};

}  // namespace impl

/// d = x - c. In the Update `parameters` are d, `gradient` is x and `state` is c.
struct TakeDifferences : impl::FixedFormula<impl::DifferenceFormula> {};

/// c = c + factor * m. In the Update `parameters` are c and `gradient` is m. A factor of 1 adds m, without rounding
/// of its own.
struct MoveCentre : impl::FixedFormula<impl::MoveCentreFormula> {
    explicit MoveCentre(double factor) { of_element.factor = static_cast<float>(factor); }
};

/// x = c. In the Update `parameters` are x and `gradient` is c.
struct TakeCentre : impl::FixedFormula<impl::TakeCentreFormula> {};

/// x = mix * x + (1 - mix) * c.
struct MixCentre : impl::FixedFormula<impl::MixCentreFormula> {
    explicit MixCentre(double mix) { of_element.mix = static_cast<float>(mix); }
};

/// The update of an outer optimiser: `u` with c as `parameters`, m as `gradient`, the state of the outer optimiser and
/// the number of the agreement as `step`. The gradient of an outer optimiser is c - mean(x) = -m.
template <class Device>
[[nodiscard]] Update<Device> outer_update(Update<Device> u) {
    u.scale = -u.scale;
    return u;
}

/// The segments of an outer update: the inner updates had the regularisers and the factors of the parameter groups.
/// Frozen parameters stay left out.
[[nodiscard]] inline std::vector<Segment> outer_segments(std::span<const Segment> segments) {
    std::vector<Segment> result;
    for (const Segment& segment : segments)
        result.push_back({.offset = segment.offset, .size = segment.size, .rank = segment.rank});
    return result;
}

/// The parts of segments that are in [begin, end) of the arena.
[[nodiscard]] inline std::vector<Segment> segments_within(std::span<const Segment> segments, std::int64_t begin,
                                                          std::int64_t end) {
    std::vector<Segment> result;
    for (Segment each : segments) {
        const std::int64_t first = std::max(each.offset, begin), last = std::min(each.offset + each.size, end);
        if (first >= last) continue;
        each.offset = first;
        each.size = last - first;
        result.push_back(each);
    }
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
