// SPDX-License-Identifier: Apache-2.0
//
// One matrix product by cuBLASLt, set up once and run many times: D = op(A) op(B), with an optional bias and ReLU, or D
// = D + op(A) op(B).
//
// Matrices are column-major without gaps, as in cuBLASLt; a row-major matrix is the transpose of such a matrix. The
// bias has one element per row of D, in D's type. Sums split over thread blocks are added in a fixed order, so the bits
// are the same each time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cublasLt.h>

#include <cupola/core/element_type.hpp>
#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class T>
inline constexpr cudaDataType_t cublas_type = [] {
    static_assert(sizeof(T) == 0, "not an element type of a matrix product");
    return CUDA_R_32F;
}();
template <>
inline constexpr cudaDataType_t cublas_type<float> = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t cublas_type<BFloat16> = CUDA_R_16BF;
template <>
inline constexpr cudaDataType_t cublas_type<Float16> = CUDA_R_16F;

struct CublasMatrix {
    cudaDataType_t type;
    /// The extents in memory, before `transposed`.
    std::int64_t rows, columns;
    bool transposed = false;
};

using CublasDescription = CudaHandle<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using CublasLayout = CudaHandle<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using CublasPreference = CudaHandle<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

class CublasProduct {
public:
    /// The alignment of the addresses of all operands, as vector loads and tensor maps require.
    static constexpr std::size_t operand_alignment = 16;
    /// The memory for split sums: the alignment that cuBLASLt requires, and the maximum size, which NVIDIA recommends
    /// for Hopper.
    static constexpr std::size_t workspace_alignment = 256, max_workspace = std::size_t{32} << 20;

    enum class Epilogue : std::uint8_t { none, bias, relu, bias_relu };

    /// No product: found() is false.
    CublasProduct() = default;

    /// Requests an algorithm from cuBLASLt. An algorithm with an epilogue is chosen as if it had a ReLU too, so that
    /// fusing a ReLU changes no other bits.
    [[gnu::cold]] CublasProduct(const CudaContext& context, const CublasMatrix& a, const CublasMatrix& b,
                                const CublasMatrix& d, Epilogue epilogue, bool rectifiable) {
        const cublasComputeType_t compute =
            a.type == CUDA_R_32F && context.options().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        check_cublas(cublasLtMatmulDescCreate(description_.out(), compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
        set(CUBLASLT_MATMUL_DESC_TRANSA, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_TRANSB, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        has_bias_ = epilogue == Epilogue::bias || epilogue == Epilogue::bias_relu;
        // The address only gives the alignment of the bias; nothing is read from it.
        if (has_bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(operand_alignment));
        make(a_, a);
        make(b_, b);
        make(d_, d);
        if (rectifiable) {
            set_epilogue(has_bias_ ? Epilogue::bias_relu : Epilogue::relu);
            found_ = search(context);
            set_epilogue(epilogue);
            if (found_ && usable(context)) return;
        }
        set_epilogue(epilogue);
        found_ = search(context);
    }

    /// Whether cuBLASLt has an algorithm for these matrices.
    [[nodiscard]] bool found() const { return found_; }
    /// Bytes of the memory to pass to `run`, at any address.
    [[nodiscard]] std::size_t workspace_bytes() const { return workspace_ == 0 ? 0 : workspace_ + workspace_alignment; }
    /// Whether `run` accepts operands at these addresses.
    template <class... Operands>
    [[nodiscard]] static bool takes(const Operands*... operands) {
        return ((reinterpret_cast<std::uintptr_t>(operands) % operand_alignment == 0) && ...);
    }

    /// `bias` is null where there is none. With `add` the product is added to D, which a product with an epilogue does
    /// not support.
    void run(const CudaContext& context, const void* a, const void* b, void* d, const void* bias, bool add,
             std::byte* workspace) {
        if (has_bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        const float one = 1.0F, beta = add ? 1.0F : 0.0F;
        if (workspace_ > 0) {
            const auto address = reinterpret_cast<std::uintptr_t>(workspace);
            workspace += (workspace_alignment - address % workspace_alignment) % workspace_alignment;
        }
        check_cublas(
            cublasLtMatmul(context.cublas(), description_.get(), &one, a, a_.get(), b, b_.get(), &beta, d, d_.get(), d,
                           d_.get(), &algorithm_, workspace_ > 0 ? workspace : nullptr, workspace_, context.stream()),
            "cublasLtMatmul");
    }

private:
    template <class V>
    void set(cublasLtMatmulDescAttributes_t attribute, const V& value) {
        check_cublas(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof value),
                     "cublasLtMatmulDescSetAttribute");
    }
    void set_epilogue(Epilogue epilogue) {
        constexpr std::array<cublasLtEpilogue_t, 4> values{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                           CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS};
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, values[static_cast<std::size_t>(epilogue)]);
    }
    static void make(CublasLayout& layout, const CublasMatrix& m) {
        check_cublas(cublasLtMatrixLayoutCreate(layout.out(), m.type, static_cast<std::uint64_t>(m.rows),
                                                static_cast<std::uint64_t>(m.columns), m.rows),
                     "cublasLtMatrixLayoutCreate");
    }

    /// The first algorithm in the order of cuBLASLt's heuristic, if any.
    [[gnu::cold]] bool search(const CudaContext& context) {
        CublasPreference preference;
        check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
            check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                         "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{max_workspace});
        // A split sum keeps its parts in float and adds them in order.
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
        for (const auto attribute :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
            prefer(attribute, std::uint32_t{operand_alignment});
        }
        std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
        int count = 0;
        const cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(context.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                           preference.get(), static_cast<int>(results.size()), results.data(), &count);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
        check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
        for (int i = 0; i < count; ++i) {
            const auto& result = results[static_cast<std::size_t>(i)];
            if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > max_workspace) continue;
            algorithm_ = result.algo;
            workspace_ = result.workspaceSize;
            return true;
        }
        return false;
    }
    /// Whether the algorithm supports the current description.
    [[gnu::cold]] bool usable(const CudaContext& context) {
        cublasLtMatmulHeuristicResult_t result{};
        if (cublasLtMatmulAlgoCheck(context.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                    &algorithm_, &result) != CUBLAS_STATUS_SUCCESS) {
            return false;
        }
        if (result.workspaceSize > max_workspace) return false;
        workspace_ = std::max(workspace_, result.workspaceSize);
        return true;
    }

    CublasDescription description_;
    CublasLayout a_, b_, d_;
    cublasLtMatmulAlgo_t algorithm_{};
    std::size_t workspace_ = 0;
    bool found_ = false, has_bias_ = false;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
