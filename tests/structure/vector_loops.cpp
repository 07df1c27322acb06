// SPDX-License-Identifier: Apache-2.0
//
// The marked loops of include/: those of cupola::compiled but for its part in bfloat16, of templates that it does not instantiate, and of the
// readers. One unit, so that the headers are parsed once.
#define CUPOLA_SRC_FUNCTIONS
#define CUPOLA_SRC_FLOAT
#include <cupola/src.hpp>

#include <cupola/data/impl/affine_pixels.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/io/impl/histogram_moments.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optimizers.hpp>

using namespace cupola;

void scaled(const HostContext& context, std::span<const float> from, std::span<float> to) {
    transform(context, from, to, [](float value) { return 2.0F * value; });
}

void scaled_bytes(const std::uint8_t* from, std::int64_t count, float* to) { impl::scale_pixels(from, count, to); }

void added(const std::uint8_t* bytes, std::int64_t chunks, impl::PixelSums& sums) {
    impl::add_pixel_sums(bytes, chunks, sums);
}

void written(const std::uint8_t* bytes, std::int64_t count, const impl::AffinePixels& affine, float* to) {
    impl::write_affine_pixels(bytes, count, affine, to);
}

void counted(impl::HistogramMoments& moments, std::span<const float> values) { moments.add(values); }

// The loop over elements is compiled once per formula: here with those of math.hpp.
struct ExpOf {
    void operator()(float& y, float x) const { y = math::exp(x); }
};
struct LogOf {
    void operator()(float& y, float x) const { y = math::log(x); }
};
struct TanhOf {
    void operator()(float& y, float x) const { y = math::tanh(x); }
};
struct ErfOf {
    void operator()(float& y, float x) const { y = math::erf(x); }
};

template <class T>
void functions(const HostContext& context, std::int64_t count, const T* x, T* y) {
    for_each_element(context, count, ExpOf{}, y, x);
    for_each_element(context, count, LogOf{}, y, x);
    for_each_element(context, count, TanhOf{}, y, x);
    for_each_element(context, count, ErfOf{}, y, x);
}
template void functions(const HostContext&, std::int64_t, const float*, float*);
template void functions(const HostContext&, std::int64_t, const BFloat16*, BFloat16*);

// The same with the formulas of optimisers under the force of elastic averaging, which is in no optimiser's compiled update.
template <class O>
void elastic(const O& optimizer, const Update<Host>& update, const ElasticForce& force) {
    update_parameters(optimizer, update, force);
}
template void elastic(const Sgd&, const Update<Host>&, const ElasticForce&);
template void elastic(const NesterovVelocity&, const Update<Host>&, const ElasticForce&);
template void elastic(const Adam&, const Update<Host>&, const ElasticForce&);
template void elastic(const Lamb&, const Update<Host>&, const ElasticForce&);

// What only a training with a clipped gradient, or of several processes, calls.
double squares(const HostContext& context, const float* w, const float* gradient, std::int64_t count,
               const GradientTerms& terms) {
    return ops::GradientNorm<Host>::sum_of_squares(context, w, gradient, count, terms);
}
void weighted_sum(const HostContext& context, std::span<const float* const> rows, std::span<const float> weights,
                  std::span<float> to) {
    ops::TrainingStep<Host>::weighted_sum(context, rows, weights, to);
}
