// SPDX-License-Identifier: Apache-2.0
//
// The rules by which replicas with parameters of their own agree, as plain loops in double, and one cycle of each as a
// matrix. The rules of cupola/parallel/kinds/ are compared with the loops, and the loops with the group "replica_rules" of
// the golden figures, with the matrices and with the bounds that theory has.
//
//   local SGD      x -= rate * g in each step; after each `every` steps the centre is the mean, and all begin from it
//   DiLoCo         the same, but the centre takes a step of Nesterov's SGD by the gradient centre - mean
//   streaming      both for the coordinates of one fragment at a time; with a delay the centre takes the mean of the
//                  differences x - c of some steps before, and a replica keeps the part `mix` of x
//   EASGD          x -= rate * g + alpha * (x - c) on steps that `every` divides; c += the sum of the forces
//   EAMSGD         the same with v = delta * v - rate * g(x + delta * v), x += v
//   asynchronous   the same, one replica after another, each with the centre that the one before it left
//   DOWNPOUR       c += the sum of a replica's last `every` changes, then x = c; one replica after another
//
// All values on the right are those before the step. The steps that `every` divides begin at 0.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rules {

inline constexpr std::size_t coordinates = 3;
/// What is divided into fragments: the arena of a network with so many parameters, which begin it, and padding.
inline constexpr int arena_elements = 16;
using Point = std::array<double, coordinates>;

/// curvature / 2 * (x - target)^2 in each coordinate. Each replica and step has its own targets, which are floats of few
/// bits, so that a training in float can have the same problem.
struct Quadratic {
    Point curvature{0.25, 1, 1.75}, start{1, -2, 0.5};
    bool targets = true;

    [[nodiscard]] double target(int replica, int step, std::size_t j) const {
        return targets ? ((7 * replica + 13 * step + 5 * static_cast<int>(j)) % 11 - 5) / 16.0 : 0.0;
    }
    [[nodiscard]] double gradient(double at, int replica, int step, std::size_t j) const {
        return curvature[j] * (at - target(replica, step, j));
    }
};

enum class Rule { local_sgd, diloco, easgd, eamsgd, asynchronous_easgd, asynchronous_eamsgd, downpour };
inline constexpr Rule all[] = {
    Rule::local_sgd,           Rule::diloco,  Rule::easgd, Rule::eamsgd, Rule::asynchronous_easgd,
    Rule::asynchronous_eamsgd, Rule::downpour};
[[nodiscard]] constexpr std::string_view name_of(Rule rule) {
    constexpr std::string_view names[] = {"local_sgd",           "diloco",  "easgd", "eamsgd", "asynchronous_easgd",
                                          "asynchronous_eamsgd", "downpour"};
    return names[static_cast<int>(rule)];
}
[[nodiscard]] constexpr bool is_elastic(Rule rule) { return rule >= Rule::easgd && rule <= Rule::asynchronous_eamsgd; }
/// One replica after another.
[[nodiscard]] constexpr bool is_asynchronous(Rule rule) { return rule >= Rule::asynchronous_easgd; }
[[nodiscard]] constexpr bool has_momentum(Rule rule) {
    return rule == Rule::eamsgd || rule == Rule::asynchronous_eamsgd;
}

struct Settings {
    Rule rule = Rule::local_sgd;
    int replicas = 1, every = 1;
    double rate = 0.125, momentum = 0.875;
    double moving_rate = 0;
    double outer_rate = 0.7, outer_momentum = 0.9;
    int fragments = 1, delay = 0;
    double mix = 0;
};

/// The golden figures' moving rate: the paper's, with beta = 0.9.
[[nodiscard]] inline Settings golden_settings(Rule rule, int replicas, int every) {
    return {.rule = rule, .replicas = replicas, .every = every, .moving_rate = 0.9 / replicas};
}

class Training {
public:
    explicit Training(const Settings& settings, const Quadratic& quadratic = {})
        : centre(quadratic.start),
          x(static_cast<std::size_t>(settings.replicas), quadratic.start),
          v(x.size()),
          pending(x.size()),
          batches(x.size()),
          settings_(settings),
          quadratic_(quadratic) {}

    /// A batch of each replica. An asynchronous rule lets them go round robin.
    void step() {
        if (is_asynchronous(settings_.rule)) {
            for (int r = 0; r < settings_.replicas; ++r) batch(r);
            return;
        }
        const Point before = centre;
        const bool elastic = is_elastic(settings_.rule) && step_ % settings_.every == 0;
        for (int r = 0; r < settings_.replicas; ++r) {
            for (std::size_t j = 0; j < coordinates; ++j) {
                const double force = elastic ? settings_.moving_rate * (at(r)[j] - before[j]) : 0;
                move(r, r, step_, j);
                at(r)[j] -= force;
                centre[j] += force;
            }
        }
        ++step_;
        const bool averages = settings_.rule == Rule::local_sgd || settings_.rule == Rule::diloco;
        if (!averages) return;
        for (std::size_t j = 0; j < coordinates; ++j) {
            int fragment = 0;
            while (arena_elements * (fragment + 1) / settings_.fragments <= static_cast<int>(j)) ++fragment;
            const int offset = fragment * settings_.every / settings_.fragments, begun = step_ - settings_.delay;
            if (step_ % settings_.every == offset) {
                difference[j] = 0;
                for (const Point& replica : x) difference[j] += (replica[j] - centre[j]) / settings_.replicas;
            }
            if (begun <= 0 || begun % settings_.every != offset) continue;
            if (settings_.rule == Rule::local_sgd) {
                centre[j] += difference[j];
            } else {
                outer[j] = settings_.outer_momentum * outer[j] - difference[j];
                centre[j] -= settings_.outer_rate * (settings_.outer_momentum * outer[j] - difference[j]);
            }
            for (Point& replica : x) replica[j] = settings_.mix * replica[j] + (1 - settings_.mix) * centre[j];
        }
    }

    /// The next batch of one replica, by an asynchronous rule: replicas may come in any order.
    void batch(int r) { batch(r, r, batches[static_cast<std::size_t>(r)]); }
    /// The same with the targets of another replica and step.
    void batch(int r, int target_of, int target_step) {
        int& own = batches[static_cast<std::size_t>(r)];
        const bool pulls = is_elastic(settings_.rule) && own % settings_.every == 0;
        const bool pushes = settings_.rule == Rule::downpour && (own + 1) % settings_.every == 0;
        for (std::size_t j = 0; j < coordinates; ++j) {
            const double force = pulls ? settings_.moving_rate * (at(r)[j] - centre[j]) : 0;
            const double before = at(r)[j];
            move(r, target_of, target_step, j);
            pending[static_cast<std::size_t>(r)][j] += at(r)[j] - before;
            at(r)[j] -= force;
            centre[j] += force;
            if (!pushes) continue;
            centre[j] += pending[static_cast<std::size_t>(r)][j];
            pending[static_cast<std::size_t>(r)][j] = 0;
            at(r)[j] = centre[j];
        }
        ++own;
    }

    /// With the mean difference that has been taken last.
    Point centre, outer{}, difference{};
    /// For each replica: its position, its velocity, and what DOWNPOUR has not pushed yet.
    std::vector<Point> x, v, pending;
    std::vector<int> batches;

private:
    [[nodiscard]] Point& at(int r) { return x[static_cast<std::size_t>(r)]; }
    void move(int r, int target_of, int step, std::size_t j) {
        const double momentum = has_momentum(settings_.rule) ? settings_.momentum : 0;
        double &position = at(r)[j], &velocity = v[static_cast<std::size_t>(r)][j];
        velocity = momentum * velocity -
                   settings_.rate * quadratic_.gradient(position + momentum * velocity, target_of, step, j);
        position += velocity;
    }

    Settings settings_;
    Quadratic quadratic_;
    int step_ = 0;
};

/// The largest magnitude of any value so far, for a bound that is relative to a trajectory.
[[nodiscard]] inline double magnitude(const Training& training) {
    double result = 0;
    const auto look = [&](const Point& point) {
        for (const double value : point) result = std::max(result, std::abs(value));
    };
    look(training.centre);
    for (const Point& point : training.x) look(point);
    return result;
}

/// A square matrix of doubles.
class Matrix {
public:
    explicit Matrix(std::size_t size) : size_(size), values_(size * size) {
        for (std::size_t i = 0; i < size; ++i) (*this)(i, i) = 1;
    }
    [[nodiscard]] double& operator()(std::size_t row, std::size_t column) { return values_[row * size_ + column]; }
    [[nodiscard]] double operator()(std::size_t row, std::size_t column) const { return values_[row * size_ + column]; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] friend Matrix operator*(const Matrix& a, const Matrix& b) {
        Matrix result(a.size_);
        for (std::size_t i = 0; i < a.size_; ++i) {
            for (std::size_t j = 0; j < a.size_; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < a.size_; ++k) sum += a(i, k) * b(k, j);
                result(i, j) = sum;
            }
        }
        return result;
    }
    [[nodiscard]] std::vector<double> operator*(const std::vector<double>& vector) const {
        std::vector<double> result(size_);
        for (std::size_t i = 0; i < size_; ++i) {
            for (std::size_t k = 0; k < size_; ++k) result[i] += (*this)(i, k) * vector[k];
        }
        return result;
    }
    [[nodiscard]] double norm() const {
        double sum = 0;
        for (const double value : values_) sum += value * value;
        return std::sqrt(sum);
    }
    void scale(double factor) {
        for (double& value : values_) value *= factor;
    }

private:
    std::size_t size_;
    std::vector<double> values_;
};

[[nodiscard]] inline Matrix power(const Matrix& matrix, int exponent) {
    Matrix result(matrix.size());
    for (int i = 0; i < exponent; ++i) result = matrix * result;
    return result;
}

/// The largest magnitude of an eigenvalue, by Gelfand's limit of norm(M^n)^(1/n) over n = 2, 4, 8, ...
[[nodiscard]] inline double spectral_radius(Matrix matrix) {
    double logarithm = 0, weight = 1;  // the norm of the power is exp(logarithm / weight)
    for (int i = 0; i < 48; ++i) {
        const double norm = matrix.norm();
        if (norm == 0) return 0;
        logarithm += weight * std::log(norm);
        matrix.scale(1 / norm);
        matrix = matrix * matrix;
        weight /= 2;
    }
    return std::exp(logarithm);
}

/// One cycle of `every` steps in one coordinate of curvature h and targets of 0, from a step that `every` divides, as a
/// matrix. `shrink` is rate * h. The state is x of each replica, then v of each, then the centre.
[[nodiscard]] inline Matrix cycle(const Settings& s, double shrink) {
    const auto p = static_cast<std::size_t>(s.replicas), centre = 2 * p;
    const double delta = has_momentum(s.rule) ? s.momentum : 0;
    const auto add_move = [&](Matrix& m, std::size_t r) {
        m(p + r, r) = -shrink;
        m(p + r, p + r) = delta - shrink * delta;
        m(r, r) = 1 - shrink;
        m(r, p + r) = delta - shrink * delta;
    };
    const auto add_force = [&](Matrix& m, std::size_t r) {
        m(r, r) -= s.moving_rate;
        m(r, centre) += s.moving_rate;
        m(centre, r) += s.moving_rate;
        m(centre, centre) -= s.moving_rate;
    };
    Matrix plain(2 * p + 1);
    for (std::size_t r = 0; r < p; ++r) add_move(plain, r);
    Matrix exchange(2 * p + 1);
    if (is_asynchronous(s.rule)) {
        for (std::size_t r = 0; r < p; ++r) {
            Matrix one(2 * p + 1);
            add_move(one, r);
            add_force(one, r);
            exchange = one * exchange;
        }
    } else {
        exchange = plain;
        for (std::size_t r = 0; r < p; ++r) add_force(exchange, r);
    }
    return power(plain, s.every - 1) * exchange;
}

/// Local SGD and DiLoCo on the centre and the outer buffer, of a cycle in which each replica's difference to the centre is
/// `moved` times the centre: 1 - (1 - rate * h)^every.
[[nodiscard]] inline Matrix outer_cycle(const Settings& s, double moved) {
    const double rate = s.rule == Rule::diloco ? s.outer_rate : 1, m = s.rule == Rule::diloco ? s.outer_momentum : 0;
    Matrix result(2);
    result(0, 0) = 1 - rate * moved * (1 + m);
    result(0, 1) = -rate * m * m;
    result(1, 0) = moved;
    result(1, 1) = m;
    return result;
}

/// DOWNPOUR, round robin: what each replica has fetched, then the centre. `moved` as above.
[[nodiscard]] inline Matrix downpour_cycle(int replicas, double moved) {
    const auto p = static_cast<std::size_t>(replicas);
    Matrix result(p + 1);
    for (std::size_t r = 0; r < p; ++r) {
        Matrix one(p + 1);
        one(p, r) = -moved;
        for (std::size_t k = 0; k <= p; ++k) one(r, k) = one(p, k);
        result = one * result;
    }
    return result;
}

/// The moving rate from which on a synchronous exchange is not stable, with plain SGD.
[[nodiscard]] inline double synchronous_bound(int replicas, int every, double shrink) {
    const double r = std::pow(1 - shrink, every - 1), q = r * (1 - shrink);
    const double of_sums = 2 * (1 + q) / (replicas * (1 + q) + 2 * r);
    return replicas == 1 ? of_sums : std::min(of_sums, 1 - shrink + 1 / std::abs(r));
}
/// The same for one exchange after another, in each step, in any order; of round robin for an odd number of replicas.
[[nodiscard]] inline double asynchronous_bound(double shrink) { return (4 - 2 * shrink) / (4 - shrink); }
/// DOWNPOUR round robin is stable for less.
[[nodiscard]] inline double downpour_bound(int replicas) {
    return 2 * std::sin(3.14159265358979323846 / (4 * replicas - 2));
}
/// The outer rate of DiLoCo from which on it is not stable.
[[nodiscard]] inline double diloco_bound(double outer_momentum, double moved) {
    return 2 * (1 + outer_momentum) / (1 + 2 * outer_momentum) / moved;
}

}  // namespace rules
