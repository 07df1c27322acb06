// SPDX-License-Identifier: Apache-2.0
//
// The matrices of Winograd's minimal filtering F(m, r) (Lavin, Gray 2015; by the construction of Toom and Cook),
// computed at compile time for the points 0, 1, -1, 1/2, -1/2, 2, -2, infinity, of which the first m + r - 2 and
// infinity are used:
//
//   y = At [(G g) * (Bt d)]      m outputs of a filter of r taps over n = m + r - 1 inputs, with n multiplications
//
// Bt and At are exact in binary. The rows of Bt, G and A at points p and -p have equal even columns and opposite odd
// columns, which the transforms use. These points have the smallest error of those tried (norm of the difference
// between single and double precision, 64 channels, F(4x4, 5x5)): 3e-6; with 3/2 and 2/3 instead of 2 and 1/2 it is
// 4e-6, with 3/4 and 4/3 2e-5.
#pragma once

#include <array>
#include <cstddef>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <std::size_t Rows, std::size_t Columns>
using WinogradMatrix = std::array<std::array<double, Columns>, Rows>;

template <std::size_t Rows, std::size_t Columns>
[[nodiscard]] constexpr WinogradMatrix<Columns, Rows> transposed(const WinogradMatrix<Rows, Columns>& matrix) {
    WinogradMatrix<Columns, Rows> result{};
    for (std::size_t i = 0; i < Rows; ++i) {
        for (std::size_t j = 0; j < Columns; ++j) result[j][i] = matrix[i][j];
    }
    return result;
}

inline constexpr std::array<double, 7> winograd_points{0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0};

/// `Tile` outputs of a filter of `Kernel` taps.
template <std::size_t Tile, std::size_t Kernel>
struct Winograd {
    static constexpr std::size_t tile = Tile, kernel = Kernel, points = Tile + Kernel - 1;
    static_assert(points % 2 == 0 && points <= 8, "the points are zero, pairs of opposite ones, and infinity");

    /// Row p: 1, p, p^2, ...; the row of infinity has only the last power. It evaluates a tile's outputs at the points.
    template <std::size_t Powers>
    [[nodiscard]] static constexpr WinogradMatrix<points, Powers> powers() {
        WinogradMatrix<points, Powers> result{};
        for (std::size_t j = 0; j + 1 < points; ++j) {
            double power = 1;
            for (std::size_t k = 0; k < Powers; ++k, power *= winograd_points[j]) result[j][k] = power;
        }
        result[points - 1][Powers - 1] = 1;
        return result;
    }

    /// Row p: the coefficients of the product of (x - q) over the finite points q other than p.
    [[nodiscard]] static constexpr WinogradMatrix<points, points> polynomials() {
        WinogradMatrix<points, points> result{};
        for (std::size_t j = 0; j < points; ++j) {
            result[j][0] = 1;
            std::size_t degree = 0;
            for (std::size_t q = 0; q + 1 < points; ++q) {
                if (q == j) continue;
                ++degree;
                for (std::size_t k = degree; k > 0; --k) {
                    result[j][k] = result[j][k - 1] - winograd_points[q] * result[j][k];
                }
                result[j][0] *= -winograd_points[q];
            }
        }
        return result;
    }

    [[nodiscard]] static constexpr WinogradMatrix<points, Kernel> filters() {
        WinogradMatrix<points, Kernel> result = powers<Kernel>();
        for (std::size_t j = 0; j + 1 < points; ++j) {
            double factor = 1;
            for (std::size_t q = 0; q + 1 < points; ++q)
                factor *= q == j ? 1.0 : winograd_points[j] - winograd_points[q];
            for (double& value : result[j]) value /= factor;
        }
        return result;
    }

    struct Input {
        static constexpr auto matrix = polynomials();  // Bt
    };
    struct Output {
        static constexpr auto matrix = transposed(powers<Tile>());  // At
    };
    struct OutputGradient {
        static constexpr auto matrix = powers<Tile>();  // A
    };
    struct Filter {
        static constexpr auto matrix = filters();  // G
    };
    struct FilterGradient {
        static constexpr auto matrix = transposed(filters());  // Gt
    };
};

}}}  // namespace cupola::CUPOLA_ABI::impl
