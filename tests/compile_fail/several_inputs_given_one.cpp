// SPDX-License-Identifier: Apache-2.0
//
// The samples of one input alone for a network with two.
//
// expect: this network has several inputs: give predict() a BatchView with a column for each
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/predict.hpp>

using namespace cupola;

struct Net : Sequential<Input<3>, Linear<2>, Keep<"a">, FromInput<"age", 2>, AddFrom<"a">> {};

inline void predict(const Predictor<Net>& predictor, std::span<const float> samples, std::span<float> outputs) {
#ifdef WITH_ERROR
    predictor.predict(samples, outputs);
#else
    predictor.predict(BatchView{1,
                                {{{"input", ElementType::float32, {3}}, samples.data()},
                                 {{"age", ElementType::float32, {2}}, samples.data()}}},
                      outputs);
#endif
}
