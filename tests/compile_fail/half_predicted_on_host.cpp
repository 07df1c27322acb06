// SPDX-License-Identifier: Apache-2.0
//
// A network in IEEE's half, trained on Cuda, is run on Host as it is: there the float one reads its checkpoints.
//
// expect: layer 1 (Linear<6>) has no `static auto operation(const BuildContext&)` for Host in float16
// errors-at-most: 3
#include <cupola/predict.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<6>, ReLU, Linear<3>> {};
#ifdef WITH_ERROR
struct Narrow : InPrecision<MixedFloat16, Net> {};
#else
struct Narrow : Net {};
#endif

void run(const std::string& path, std::span<const float> sample, std::span<float> logits) {
    const Predictor<Narrow> predictor(path);
    predictor.predict(sample, logits);
}
