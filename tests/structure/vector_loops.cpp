// SPDX-License-Identifier: Apache-2.0
//
// The marked loops of include/ that cupola::ops does not hold: templates that nothing there asks for, and the readers'.
#include <cupola/cupola.hpp>
#include <cupola/data/impl/affine_pixels.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/host.hpp>
#include <cupola/io/impl/histogram_moments.hpp>

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
