// SPDX-License-Identifier: Apache-2.0

// case: collection_of_no_regularizer
// expect: Dropout<0.5> is not a regulariser: it lacks `names`, `value` or `static constexpr CompileTimeMessage diagnostic(std::span<const LayerInfo>)`
// case: weight_decay_of_no_layer
// expect: WeightDecay names the layer hiden, but the network has no layer of that name with weights
// case: weight_decay_of_nothing
// expect: WeightDecay names no layer; name at least one, as in WeightDecay<0.004, 'local3'>
struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Linear<3>> {};

/* wrong collection_of_no_regularizer */ using Decay = Dropout<0.5>;
/* wrong weight_decay_of_no_layer */ using Decay = WeightDecay<0.004, "hiden">;
/* wrong weight_decay_of_nothing */ using Decay = WeightDecay<0.004>;
/* right */ using Decay = WeightDecay<0.004, "hidden">;

// fit: Net, LossCollection<CrossEntropy<3>, Decay>, Sgd, ConcatMean

// case: frozen_everything
// Patterns of Frozen that leave nothing to train, and a training with them: one message.
// expect: Frozen leaves no parameter to train: its patterns match all of the network's
#include <cupola/net/frozen.hpp>
struct Net : Sequential<Input<5>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

/* wrong */ struct Tuned : Frozen<Net, "body.*", "*.weight", "head.bias"> {};
/* right */ struct Tuned : Frozen<Net, "body.*", "*.weight"> {};

// fit: Tuned, CrossEntropy<3>, Sgd, ConcatMean

// case: frozen_pattern_of_nothing
// A pattern of Frozen that matches no parameter: the message lists the names.
// expect: Frozen's pattern 'body/*' matches none of the parameters body.weight, body.bias, head.weight, head.bias
#include <cupola/net/frozen.hpp>
struct Net : Sequential<Input<4>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

/* wrong */ struct Tuned : Frozen<Net, "body/*"> {};
/* right */ struct Tuned : Frozen<Net, "body.*"> {};

// case: frozen_without_pattern
// expect: Frozen names no parameters; name at least one pattern, as in Frozen<Net, 'body.*'>
#include <cupola/net/frozen.hpp>
struct Net : Sequential<Input<6>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

/* wrong */ struct Tuned : Frozen<Net, FrozenNorms::batch_statistics> {};
/* right */ struct Tuned : Frozen<Net, FrozenNorms::batch_statistics, "body.*"> {};

// case: elastic_without_formula
// An elastic force for an optimiser whose update is no formula of one element.
// expect: Descent takes no elastic force: its `update` is no formula of one element, and it lacks `void update(const Update<Device>&, const ElasticForce&) const`
#include <cupola/optim/elastic_update.hpp>
struct Descent {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    [[nodiscard]] std::string description() const { return "descent"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
#ifdef WITH_ERROR
    template <class Device>
    void update(const Update<Device>&) const {}
#else
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        apply(impl::SgdFormula{0.1F});
    }
#endif
};

void run(const Update<Host>& update, const ElasticForce& force) { update_parameters(Descent{}, update, force); }

// case: optimizer_with_wrong_formula
// expect: a formula must be a function object of plain numbers with `void operator()(float& w, float g, float&... state) const`
struct DescentFormula {
    float rate;
    /* wrong */ void operator()(float& w, const float& g) const { w -= rate * g; }
    /* right */ void operator()(float& w, float g) const { w -= rate * g; }
};

struct Descent {
    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    [[nodiscard]] std::string description() const { return "descent"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        apply(DescentFormula{0.1F});
    }
};

// fit: Net, CrossEntropy<3>, Descent, ConcatMean

// case: optimizer_without_description
// An optimiser that the log could not describe.
// expect: Descent is not an optimiser on Host: it lacks `std::string description() const`
// case: optimizer_without_learning_rate
// An optimiser without the function of its learning rate, which the report needs.
// expect: Descent is not an optimiser on Host: it lacks `double learning_rate_at(std::int64_t step) const`
// case: optimizer_without_state_arenas
// expect: Descent is not an optimiser on Host: it lacks `int state_arenas() const`
// case: optimizer_without_state_name
// An optimiser whose state could not be named in a checkpoint.
// expect: Descent is not an optimiser on Host: it lacks `std::string_view state_name(int arena) const`
// case: optimizer_without_update
// expect: Descent is not an optimiser on Host: it lacks `void formula(std::int64_t step, const Segment&, auto&& apply) const` or `void update(const Update<Device>&) const`
struct Descent {
    /* optimizer_without_state_arenas */ [[nodiscard]] int state_arenas() const { return 0; }
    /* optimizer_without_state_name */ [[nodiscard]] std::string_view state_name(int) const { return "none"; }
    /* optimizer_without_description */ [[nodiscard]] std::string description() const { return "descent"; }
    /* optimizer_without_learning_rate */ [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    /* optimizer_without_update */ template <class Device>
    void update(const Update<Device>&) const {}
};

// fit: Net, CrossEntropy<3>, Descent, ConcatMean

// case: weight_decay_below_zero
// expect: the coefficient of WeightDecayAll must be finite and at least 0
struct Net : Sequential<Input<4>, Linear<2>> {};

/* wrong */ using Loss = LossCollection<CrossEntropy<2>, WeightDecayAll<-0.1>>;
/* right */ using Loss = LossCollection<CrossEntropy<2>, WeightDecayAll<0.1>>;

// step: Net, Loss, Sgd, ConcatMean

// case: weight_decay_of_a_frozen_layer
// expect: WeightDecay names the layer body, whose weights are frozen: leave it out, because they cannot decay
#include <cupola/net/frozen.hpp>
struct Net : Sequential<Input<7>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};
struct Tuned : Frozen<Net, "body.*"> {};

/* wrong */ using Decay = WeightDecay<0.004, "head", "body">;
/* right */ using Decay = WeightDecay<0.004, "head">;

// fit: Tuned, LossCollection<CrossEntropy<3>, Decay>, Sgd, ConcatMean
