// SPDX-License-Identifier: Apache-2.0

// case: batch_without_shape
// expect: a BatchView also needs the extents of a sample: BatchView{inputs, labels, size, input_shape}
BatchView batch(const float* samples, const std::int32_t* labels) {
    /* wrong */ return {samples, labels, 8};
    /* right */ return {samples, labels, 8, Net::input_shape};
}

// case: bytes_and_ids_of_one_input
// expect: layer 2 (FromBytes<>) reads the Input as uint8, and layer 5 (Embedding<10, 1>) as int32
/* wrong */ struct Net
    : Sequential<Input<1>, Keep<"x">, FromBytes<>, Keep<"a">, From<"x">, Embedding<10, 1>, Flatten, AddFrom<"a">> {};
/* right */ struct Net
    : Sequential<Input<1>, FromBytes<>, Keep<"a">, FromInput<"y", 1>, Embedding<10, 1>, Flatten, AddFrom<"a">> {};

// case: column_of_the_input
// expect: layer 3 (FromInput<input>) reads the column of the network's Input: keep that with a Keep after the Input
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"input", 3>, ConcatWith<"a">> {};
/* right */ struct Net : Sequential<Input<3>, Keep<"input">, Linear<5>, Keep<"a">, From<"input">, ConcatWith<"a">> {};

// case: column_read_twice
// expect: layer 7 (FromInput<age>) reads a column for the second time: keep the output of layer 3 (FromInput<age>) and read that
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">,
                                    Keep<"b">, FromInput<"age", 4>, ConcatWith<"b">> {};
/* right */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Keep<"age">, Linear<5>,
                                    AddFrom<"a">, ConcatWith<"age">> {};

// case: column_without_extents
// expect: layer 3 (FromInput<age>) has a size of zero: it needs the extents of a sample after the column's name
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age">, Linear<5>, AddFrom<"a">> {};
/* right */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};

// case: compose_in_the_wrong_order
// expect: transform 2 of Compose, ColorJitter, does not take the values that ImagePreprocessing makes
#include <cupola/data/color_jitter.hpp>
#include <cupola/data/compose.hpp>
#include <cupola/models/image_preprocessing.hpp>

/* wrong */ inline const Compose augmented{ImagePreprocessing{}, ColorJitter{.hue = 0.1}};
/* right */ inline const Compose augmented{ColorJitter{.hue = 0.1}, ImagePreprocessing{}};

// case: fit_without_batches
// expect: InMemory is not a source of batches: fit calls it with (step, replica, context) and needs a BatchView, as from Prefetch or InMemoryBatches
void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.replicas = 2, .batch_size = 8});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});
    /* wrong */ fit(training, data, {.steps = 10}, LogEvery{5});
    /* right */ fit(training, batches, {.steps = 10}, LogEvery{5});
}

// case: fit_without_prefetch
// expect: has no memory for its batches: write Prefetch batches(TrainingBatches(...)), or Prefetch around another source
void run(const InMemory& data) {
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.batch_size = 8});
    /* wrong */ TrainingBatches batches(data, IdentityTransform{}, {.batch_size = 8});
    /* right */ Prefetch batches(TrainingBatches(data, IdentityTransform{}, {.batch_size = 8}));
    fit(training, batches, {.steps = 10});
}

// case: floats_and_ids_of_one_input
// expect: layer 5 (Linear<4>) reads the Input as float32, and layer 2 (Embedding<10, 4>) as int32
/* wrong */ struct Net : Sequential<Input<1>, Keep<"ids">, Embedding<10, 4>, Keep<"a">, From<"ids">, Linear<4>,
                                    Keep<"b">, From<"a">, Flatten, AddFrom<"b">> {};
/* right */ struct Net
    : Sequential<Input<1>, Keep<"ids">, Embedding<10, 4>, Keep<"a">, From<"ids">, Embedding<10, 4>, AddFrom<"a">> {};

// case: means_of_five_channels
// expect: takes 1 to 4 means and deviations, one for all channels or one per channel; its input is 4 x 4 x 5 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 5>, FromBytes<means(1, 2, 3, 4, 5)>, Flatten, Linear<3>> {};
/* right */ struct Net : Sequential<Input<4, 4, 4>, FromBytes<means(1, 2, 3, 4), deviations(2.5)>, Flatten, Linear<3>> {
};

// case: memory_batches_of_a_split
// expect: InMemoryBatches is for InMemory alone: for another data set, such as a part of a split, write Prefetch batches(TrainingBatches(data, IdentityTransform{}, {...}))
#include <cupola/data/split.hpp>

void run(const InMemory& data) {
    const auto [part, held_back] = split(data, {.validation = 0.2, .seed = 1});
    /* wrong */ InMemoryBatches batches(part, {.batch_size = 50});
    /* right */ Prefetch batches(TrainingBatches(part, IdentityTransform{}, {.batch_size = 50}));
}

// case: several_inputs_given_one
// expect: this network has several inputs: give predict() a BatchView with a column for each
#include <cupola/predict.hpp>

struct Net : Sequential<Input<3>, Linear<2>, Keep<"a">, FromInput<"age", 2>, AddFrom<"a">> {};

inline void predict(const Predictor<Net>& predictor, std::span<const float> samples, std::span<float> outputs) {
    /* wrong */ predictor.predict(samples, outputs);
    /* right */ predictor.predict(BatchView{1,
                                            {{{"input", ElementType::float32, {3}}, samples.data()},
                                             {{"age", ElementType::float32, {2}}, samples.data()}}},
                                  outputs);
}

// case: stored_samples_of_different_extents
// expect: a data set with stored_sample(i) has samples of one shape: sample(i) must not have a shape()
#include <cupola/io/fingerprint.hpp>

struct Sample : std::span<const float> {
    /* wrong */ Shape shape() const { return {1}; }
};
struct Measured {
    std::string_view name() const { return "measured"; }
    std::int64_t size() const { return 1; }
    Shape sample_shape() const { return {1}; }
    Sample sample(std::int64_t) const { return {std::span(&value, 1)}; }
    ElementType sample_type() const { return ElementType::float32; }
    const std::byte* stored_sample(std::int64_t) const { return reinterpret_cast<const std::byte*>(&value); }
    std::int32_t label(std::int64_t) const { return 0; }
    std::int64_t class_count() const { return 1; }
    float value = 0;
};
inline std::string contents(const Measured& data) { return fingerprint(data); }

// case: temporary_that_is_kept
// Temporaries as samples, labels, names and functions that are kept and not copied.
// expect: a temporary is gone before it is read here, because nothing is copied: keep it in a variable
// expect: [with Source = std::vector<float
// expect: [with Source = std::vector<int
// expect: [with Source = std::vector<unsigned char
// expect: [with Source = std::__cxx11::basic_string<char>; View = std::basic_string_view<char>]
// expect: CheckpointInfo&)>]
// expect: Columns&&)'
// expect-clang: a temporary is gone before it is read here, because nothing is copied: keep it in a variable
// expect-clang: Borrowed<std::vector<float>>
// expect-clang: Borrowed<std::vector<int>>
// expect-clang: Borrowed<std::vector<unsigned char>>
// expect-clang: Borrowed<std::basic_string<char>>
// expect-clang: Borrowed<(lambda at
// expect-clang: call to deleted constructor of 'const BatchSpan'
// errors-at-most: 6
#include <cupola/train/checkpoint_every.hpp>

struct Made {
    std::string name = "boxes";
    std::vector<float> floats{1, 2};
    std::vector<std::int32_t> labels{0, 1};
    std::vector<std::uint8_t> bytes{3, 4};
};

void run(const Made& made) {
    const auto progress = [](CheckpointInfo&) {};
    const Columns columns{{"input", ElementType::float32, {1}}};
#ifdef WITH_ERROR
    const auto load = [&] { return made; };
    const InMemory classes({1}, load().floats, load().labels, 2);
    const InMemory named({1}, made.floats, {{made.name + " of all", {1}, Made().bytes}});
    const CheckpointOptions options{.progress = [](CheckpointInfo&) {}};
    const BatchSpan batch{Columns(columns)};
#else
    const InMemory classes({1}, made.floats, made.labels, 2);
    const InMemory named({1}, made.floats, {{made.name, {1}, made.bytes}}, "all");
    const InMemory spans({1}, std::span(made.floats), {1}, std::span(made.floats).first(2), std::string_view("all"));
    const CheckpointOptions options{.progress = progress};
    const BatchSpan batch{columns};
#endif
}

// case: values_of_other_types
// Labels of 64 bits or floats, samples and targets of doubles.
// expect: class labels in memory are std::int32_t (targets of floats follow their extents), not long
// expect: class labels in memory are std::int32_t (targets of floats follow their extents), not float
// expect: samples in memory are float, std::int32_t (ids) or std::uint8_t (bytes), not double
// expect: targets in memory are float (those of other types have names: {{name, extents, values}}), not double
// expect: the values of a column are float, std::int32_t or std::uint8_t, not double
// expect: the class labels of a BatchView are std::int32_t, not long
// expect: the targets of such a BatchView are float (a list of columns has any types), not double
// expect: the inputs of such a BatchView are float (a list of columns has any types), not double
// errors-at-most: 8
void run(const std::vector<float>& x, const std::vector<double>& doubles, const std::vector<std::int64_t>& longs,
         const std::vector<std::int32_t>& y) {
#ifdef WITH_ERROR
    const InMemory first({2}, x, longs, 2), second({2}, x, x, 2), third({2}, doubles, y, 2);
    const InMemory fourth({2}, x, {1}, doubles), fifth({2}, x, {{"box", {1}, doubles}, {"kind", {1}, y}});
    const BatchView sixth{x.data(), longs.data(), 10, Shape{2}};
    const BatchView seventh{x.data(), {2}, doubles.data(), {1}, 10};
    const BatchView eighth{doubles.data(), y.data(), 10, Shape{2}};
#else
    const InMemory first({2}, x, y, 2), second({2}, x, {1}, x), third({2}, y, y, 2), fourth({2}, x, {{"box", {1}, x}});
    const BatchView sixth{x.data(), y.data(), 10, Shape{2}}, seventh{x.data(), {2}, x.data(), {1}, 10};
    std::vector<float> variable(2);
    std::vector<std::int32_t> labels(1);
    const BatchView eighth{variable.data(), labels.data(), 1, {2}}, ninth{nullptr, labels.data(), 0, {2}};
#endif
}

// case: view_of_another_size
// expect: layer 2 (Padded) has the kind view and an output whose size differs from that of its input; its output is 9; its input is 8 from layer 1 (Linear<8>)
struct Padded {
    static constexpr LayerKind kind = LayerKind::view;
    /* wrong */ static constexpr ShapeResult output(const Shape& input) { return Shape{input.size() + 1}; }
    /* right */ static constexpr ShapeResult output(const Shape& input) { return Shape{input.size()}; }
};
struct Net : Sequential<Input<4>, Linear<8>, Padded, Linear<2>> {};
