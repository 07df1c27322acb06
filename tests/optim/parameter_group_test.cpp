// SPDX-License-Identifier: Apache-2.0
//
// Parameter groups: which group a parameter is in, what is rejected, and the factors in each optimiser's update.
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/parameter_group.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "each_optimizer.hpp"
#include "stepping.hpp"
#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<6>, Named<"hidden", Linear<5>>, ReLU, Named<"head", Linear<3>>> {};

using Groups = std::vector<ParameterGroup>;

std::string error_of(const Groups& groups) {
    return message_of<InvalidArgument>([&] { require_valid_groups(groups, Net::layers); });
}

/// An optimiser of a user that does not know of groups.
struct Simple {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return ""; }
    [[nodiscard]] std::string description() const { return "simple"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        apply(impl::SgdFormula{0.1F});
    }
};
static_assert(!UsesSegmentFactors<Simple> && !UsesSegmentFactors<Clipped<Simple>> && UsesSegmentFactors<Clipped<Lars>>);

}  // namespace

TEST_CASE("a parameter is in the first group whose pattern matches its name, or in none") {
    const Groups groups{{.pattern = "head.*"}, {.pattern = "*.bias", .rate = 2}};
    CHECK(group_of(groups, "head.bias") == groups.data());
    CHECK(group_of(groups, "hidden.bias") == groups.data() + 1);
    CHECK(group_of(groups, "hidden.weight") == nullptr);
    CHECK(group_of({}, "hidden.weight") == nullptr);
}

TEST_CASE("groups describe themselves for the log and the checkpoint") {
    CHECK(
        description_of(Groups{
            {.pattern = "head.*", .rate = 10}, {.pattern = "*.bias", .decay = 0}, {.pattern = "*", .frozen = true}}) ==
        "head.*: rate x 10, decay x 1; *.bias: rate x 1, decay x 0; *: frozen");
    CHECK(description_of(Groups{}).empty());
}

TEST_CASE("a group that does nothing, a factor that is none, and groups that freeze everything are errors") {
    CHECK(error_of({}) == "(no exception)");
    CHECK(error_of({{.pattern = "*.bias", .rate = 0}, {.pattern = "*", .frozen = false}}) == "(no exception)");
    CHECK(
        error_of({{.pattern = "*.bias"}, {.pattern = "*/bias"}}) ==
        "the parameter group '*/bias' matches none of the parameters that are trained: hidden.weight, hidden.bias, head.weight, head.bias");
    CHECK(
        error_of({{.pattern = ""}}) ==
        "the parameter group '' matches none of the parameters that are trained: hidden.weight, hidden.bias, head.weight, head.bias");
    struct Deep : Sequential<Input<6>, Linear<5>, Linear<5>, Linear<5>, Linear<5>, Linear<5>> {};
    CHECK(message_of<InvalidArgument>([] { require_valid_groups(Groups{{.pattern = "head"}}, Deep::layers); }) ==
          "the parameter group 'head' matches none of the parameters that are trained: 0.weight, 0.bias, 1.weight, "
          "1.bias, 2.weight, 2.bias, 3.weight, 3.bias and 2 more");
    CHECK(error_of({{.pattern = "*"}, {.pattern = "head.*"}}) ==
          "the parameter group 'head.*' matches only parameters of the groups before it, and the first group that "
          "matches counts");
    CHECK(error_of({{.pattern = "*", .rate = -1}}) ==
          "the rate of the parameter group '*' must be a factor of at least 0, not -1");
    CHECK(error_of({{.pattern = "*", .decay = std::numeric_limits<double>::quiet_NaN()}}) ==
          "the decay of the parameter group '*' must be a factor of at least 0, not nan");
    CHECK(error_of({{.pattern = "head.*", .frozen = true}, {.pattern = "*", .frozen = true}}) ==
          "the parameter groups freeze every parameter, so there is nothing to train: head.*: frozen; *: frozen");
}

TEST_CASE("a training rejects groups where its optimiser does not use their factors") {
    using Training = DataParallel<Net, CrossEntropy<3>, Clipped<Simple>, ConcatMean, Host>;
    const std::string message = message_of<InvalidArgument>(
        [] { Training training({.batch_size = 2, .groups = {{.pattern = "*.bias", .rate = 2}}}); });
    CHECK(message.starts_with("parameter groups need an optimiser that uses their factors, and Clipped<"));
    CHECK(message.ends_with("Simple> does not declare `static constexpr bool uses_segment_factors = true`"));
    CHECK(Training({.batch_size = 2}).step() == 0);
}

/// The factors 4 and 0.5 are exact, so the bits are those of an optimiser with other settings.
template <class O>
O scaled(O optimizer) {
    optimizer.learning_rate = optimizer.learning_rate(0) * 4;
    optimizer.weight_decay *= 0.5;
    return optimizer;
}
template <class O>
Clipped<O> scaled(Clipped<O> clipped) {
    clipped.optimizer = scaled(clipped.optimizer);
    return clipped;
}

TEST_CASE("every optimiser multiplies its rate and its decay by a segment's factors, and those of no other segment") {
    with_each_optimizer([](const auto& optimizer) {
        CAPTURE(optimizer.description());
        const auto other = scaled(optimizer);
        const std::vector<std::int64_t> sizes{40, 17};
        const auto initial = stepping::numbers(57, 1);
        stepping::Arena plain(optimizer, sizes), changed(other, sizes), grouped(optimizer, sizes);
        grouped.segments[1].rate_factor = 4;
        grouped.segments[1].decay_factor = 0.5;
        for (auto* arena : {&plain, &grouped}) arena->scatter(arena->w, initial);
        changed.scatter(changed.w, initial);
        for (std::uint32_t step = 0; step < 3; ++step) {
            const auto gradient = stepping::numbers(57, 10 + step);
            const auto a = plain.step(step, gradient), b = changed.step(step, gradient),
                       c = grouped.step(step, gradient);
            CHECK(std::vector(c.begin(), c.begin() + 40) == std::vector(a.begin(), a.begin() + 40));
            CHECK(std::vector(c.begin() + 40, c.end()) == std::vector(b.begin() + 40, b.end()));
            CHECK(std::vector(c.begin() + 40, c.end()) != std::vector(a.begin() + 40, a.end()));
        }
    });
}
