// SPDX-License-Identifier: Apache-2.0

// case: huber_without_delta
// expect: the delta of Huber must be positive and finite
#include <cupola/losses.hpp>
struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<2>> {};

/* wrong */ using Loss = Huber<0>;
/* right */ using Loss = Huber<0.5>;

// step: Net, Loss, Sgd, ConcatMean

// case: training_of_several_outputs
// expect: the network has the outputs kind, box, and the loss cross_entropy is of one: use Losses with an At for each output
// case: loss_at_missing_output
// expect: Losses has a loss at the output boxes, but the outputs of the network are: kind, box
// case: loss_of_other_classes_at_output
// expect: CrossEntropy<4> expects an output of 4
// case: output_without_loss
// expect: Losses has no loss at the output box
// case: two_losses_at_one_output
// expect: Losses has two losses at the output kind
// case: weights_in_several_losses
// expect: Losses has a loss that counts samples by weights (kind)
#include <cupola/losses.hpp>
struct Net : Sequential<Input<8>, Linear<8>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">, Linear<4>,
                        Output<"box">> {};

/* wrong loss_at_missing_output */ using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"boxes", MeanSquaredError>>;
/* wrong loss_of_other_classes_at_output */ using Loss =
    Losses<At<"kind", CrossEntropy<4>>, At<"box", MeanSquaredError>>;
/* wrong output_without_loss */ using Loss = Losses<At<"kind", CrossEntropy<3>>>;
/* wrong two_losses_at_one_output */ using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"kind", CrossEntropy<3>>>;
/* wrong weights_in_several_losses */ using Loss =
    Losses<At<"kind", WeightedCrossEntropy<3>>, At<"box", MeanSquaredError>>;
/* wrong training_of_several_outputs */ using Loss = CrossEntropy<4>;
/* right */ using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError>>;

void run() { DataParallel<Net, Loss, Sgd, ConcatMean, Host> training({.batch_size = 8}); }

// case: loss_formula_of_fewer_members
// expect: QuantileFormula cannot be made of the 2 constants of its ElementwiseLoss: they are its members, as floats, in their order
// case: loss_formula_without_constant
// expect: QuantileFormula has a member without a value: its ElementwiseLoss has 0 constants, and each member needs one or an initialiser, as in ElementwiseLoss<QuantileFormula, 0.5>
#include <cupola/losses.hpp>
struct QuantileFormula {
    float q;
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return math::select(t > x, q, q - 1.0F) * (t - x); }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::select(t > x, -q, 1.0F - q); }
};
/* wrong loss_formula_of_fewer_members */ using Base = ElementwiseLoss<QuantileFormula, 0.9, 0.1>;
/* wrong loss_formula_without_constant */ using Base = ElementwiseLoss<QuantileFormula>;
/* right */ using Base = ElementwiseLoss<QuantileFormula, 0.9>;
struct Quantile : Base {
    static constexpr std::string_view name = "quantile";
};

// step: Net, Quantile, Sgd, ConcatMean

// case: loss_formula_without_derivative
// expect: CubeFormula is not the formula of a loss: it lacks `float derivative(float output, float target) const`
#include <cupola/losses.hpp>
struct CubeFormula {
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return (x - t) * (x - t) * math::abs(x - t); }
    /* right */ CUPOLA_HOST_DEVICE float derivative(float x, float t) const {
        return 3.0F * (x - t) * math::abs(x - t);
    }
};
struct Cube : ElementwiseLoss<CubeFormula> {
    static constexpr std::string_view name = "cube";
};

// step: Net, Cube, Sgd, ConcatMean

// case: loss_name_with_space
// expect: the name cross entropy contains a space, but lists of losses separate their names by spaces
struct Net : Sequential<Input<4>, Linear<3>> {};

struct Entropy : CrossEntropy<3> {
    /* wrong */ static constexpr std::string_view name = "cross entropy";
    /* right */ static constexpr std::string_view name = "entropy";
};

DataParallel<Net, Entropy, Sgd, ConcatMean, Host> training({.batch_size = 8});

// case: loss_of_other_classes
// expect: CrossEntropy<10> expects an output of 10, or of 10 channels at each position, but the network's is 3
/* wrong */ using Loss = CrossEntropy<10>;
/* right */ using Loss = CrossEntropy<3>;

// fit: Net, Loss, Sgd, ConcatMean

// case: loss_without_diagnostic
// expect: Hinge is not a loss on Host: it lacks `static constexpr CompileTimeMessage diagnostic(const Shape& output)`
// case: loss_without_name
// A loss whose part of the total could not be reported.
// expect: Hinge is not a loss on Host: it lacks `static constexpr std::string_view name`
// case: loss_without_operation
// expect: Hinge is not a loss on Host: it lacks `operation<Device>(const Shape& output)` with `LossResult forward(Context&, const float* outputs, const Target* targets, std::int64_t batch, float* gradient)`
// case: loss_without_target
// expect: Hinge is not a loss on Host: it lacks `using Target = float` or `std::int32_t` and `static constexpr Shape target(const Shape& output)`
struct Hinge {
    /* loss_without_name */ static constexpr std::string_view name = "hinge";
    /* loss_without_diagnostic */ static constexpr CompileTimeMessage diagnostic(const Shape&) { return {}; }
    /* loss_without_target */ using Target = std::int32_t;
    /* loss_without_target */ static constexpr Shape target(const Shape&) { return {1}; }
    struct Operation {
        LossResult forward(HostContext&, const float*, const std::int32_t*, std::int64_t, float*) const { return {}; }
    };
    /* loss_without_operation */ template <class Device>
    [[nodiscard]] Operation operation() const {
        return {};
    }
};

// fit: Net, Hinge, Sgd, ConcatMean

// case: metric_of_other_targets
// expect: metrics::MeanAbsoluteError compares the output with targets (float32) of its extents; the output is 3, and the loss reads int32 1
#include <cupola/metrics.hpp>
void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    EvaluationBatches test(data, IdentityTransform{}, 8);
    /* wrong */ fit(training, batches, {.epochs = 2, .validation = test, .metrics = {metrics::MeanAbsoluteError{}}});
    /* right */ fit(training, batches, {.epochs = 2, .validation = test, .metrics = {metrics::Accuracy{}}});
}

// case: metric_without_report
// expect: Count is not a metric: it lacks `void report(MetricResults&) const`
#include <cupola/metrics/metric.hpp>
struct Count {
    std::int64_t count = 0;
    void begin(const MetricTask&) { count = 0; }
    void add(const MetricBatch& batch) { count += batch.size; }
    /* wrong */ double report() const { return static_cast<double>(count); }
    /* right */ void report(MetricResults& results) const {
        results.add("count", static_cast<double>(count), Better::larger);
    }
};

void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    evaluate(training, EvaluationBatches(data, IdentityTransform{}, 8), Count{});
}

// case: one_class
// A cross-entropy whose loss is always 0.
// expect: CrossEntropy<1> has too few classes
#include <cupola/losses.hpp>
struct Net : Sequential<Input<4>, Linear<1>> {};

/* wrong */ using Loss = CrossEntropy<1>;
/* right */ using Loss = MeanSquaredError;

// step: Net, Loss, Sgd, ConcatMean

// case: weighted_by_nothing
// expect: the factor of a Weighted loss must be finite and more than 0; that of huber is not
#include <cupola/losses.hpp>
struct Net : Sequential<Input<4>, Linear<2>> {};

/* wrong */ using Loss = Weighted<0, Huber<>>;
/* right */ using Loss = Weighted<0.5, Huber<>>;

// step: Net, Loss, Sgd, ConcatMean

// case: weighted_loss_of_other_classes
// expect: WeightedCrossEntropy<9> expects an output of 9, or of 9 channels at each position, but the network's is 6 x 6 x 4
#include <cupola/losses.hpp>
struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>> {};

/* wrong */ using Loss = WeightedCrossEntropy<9>;
/* right */ using Loss = WeightedCrossEntropy<4>;

// step: Net, Loss, Sgd, ConcatMean
