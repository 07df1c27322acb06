// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's products by plain loops: D = epilogue(alpha op(A) op(B) + beta C), of float, bfloat16 and half, summed in
// float. Work is queued on the stream of the call and runs later.
//
// The stand-in makes a wrong use visible: an algorithm fills its workspace, requires the alignment that the preference
// promised and the shape for which it was found, and its results differ in their bits from those of the others. Memory
// whose contents CUDA's contract leaves undefined is poisoned: the workspace before the product, and D where it is not
// read.
#include <cublasLt.h>

#include "../../standard.hpp"
#include "control.hpp"
#include "memory.hpp"
#include "numbers.hpp"
#include "stream.hpp"

using cupola::emulator::ElementKind;

struct cublasLtContext {
    int device;
};
struct cublasLtMatrixLayout {
    cudaDataType type;
    std::uint64_t rows, columns;
    std::int64_t leading_dimension;
};
struct cublasLtMatmulDesc {
    cublasComputeType_t compute;
    cudaDataType scale;
    std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
};
struct cublasLtMatmulPreference {
    std::uint64_t max_workspace = 0;
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    /// The layout of A, B, C or D.
    std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};
};

namespace {

using namespace cupola::emulator;

/// The alignment of the workspace that cuBLASLt's documentation requires.
constexpr std::uintptr_t workspace_alignment = 256;
/// The minimum size in bytes of a load for the tensor cores.
constexpr std::int64_t pair_bytes = 4;
constexpr std::uint64_t algorithm_mark = 0x43'75'70'6F'6C'61'4C'74;

[[nodiscard]] std::optional<ElementKind> kind_of(cudaDataType type) {
    if (type == CUDA_R_32F) return ElementKind::float32;
    if (type == CUDA_R_16F) return ElementKind::float16;
    if (type == CUDA_R_16BF) return ElementKind::bfloat16;
    return std::nullopt;
}

/// One product, checked.
struct Product {
    std::int64_t m = 0, n = 0, k = 0;
    ElementKind a{}, b{}, d{};
    /// The distances in elements between two rows, and between two columns, of op(A), op(B), C or D.
    std::int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_column = 0, d_column = 0;
    bool tf32 = false, bias = false, relu = false;

    [[nodiscard]] std::uint64_t hash() const {
        std::uint64_t result = 1469598103934665603U;
        for (const std::int64_t part : {m, n, k, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b),
                                        static_cast<std::int64_t>(d), a_row, b_row, d_column, std::int64_t{tf32}}) {
            result = (result ^ static_cast<std::uint64_t>(part)) * 1099511628211U;
        }
        return result;
    }
};

/// A sum over k has `splits` parts, whose sums are added in order: in float, or after rounding to D's type.
struct Algorithm {
    std::int64_t splits = 1;
    bool rounds_parts = false;
    std::array<std::uint32_t, 4> alignments{};
    std::uint64_t shape = 0;

    [[nodiscard]] cublasLtMatmulAlgo_t packed() const {
        cublasLtMatmulAlgo_t result{};
        result.data[0] = algorithm_mark;
        result.data[1] = static_cast<std::uint64_t>(splits);
        result.data[2] = rounds_parts ? 1 : 0;
        for (std::size_t i = 0; i < 4; ++i) result.data[3 + i] = alignments[i];
        result.data[7] = shape;
        return result;
    }
    [[nodiscard]] static std::optional<Algorithm> unpacked(const cublasLtMatmulAlgo_t& algorithm) {
        if (algorithm.data[0] != algorithm_mark) return std::nullopt;
        Algorithm result{static_cast<std::int64_t>(algorithm.data[1]), algorithm.data[2] != 0, {}, algorithm.data[7]};
        for (std::size_t i = 0; i < 4; ++i) result.alignments[i] = static_cast<std::uint32_t>(algorithm.data[3 + i]);
        return result;
    }
    /// The type of the sums of the parts.
    [[nodiscard]] std::size_t workspace(const Product& product) const {
        return splits == 1 ? 0 : static_cast<std::size_t>(splits * product.m * product.n) * sizeof(float);
    }
};

[[nodiscard]] bool is_transposed(std::int32_t operation) { return operation != CUBLAS_OP_N; }

/// INVALID_VALUE if the extents of the matrices do not agree, NOT_SUPPORTED if there is no kernel.
[[nodiscard]] cublasStatus_t product_of(const cublasLtMatmulDesc* description, const cublasLtMatrixLayout* a,
                                        const cublasLtMatrixLayout* b, const cublasLtMatrixLayout* c,
                                        const cublasLtMatrixLayout* d, Product& product) {
    if (description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const cublasLtMatrixLayout* layout : {a, b, c, d}) {
        if (layout->rows == 0 || layout->columns == 0) return CUBLAS_STATUS_INVALID_VALUE;
        if (layout->leading_dimension < static_cast<std::int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (const std::int32_t operation : {description->transpose_a, description->transpose_b}) {
        if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T && operation != CUBLAS_OP_C)
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool ta = is_transposed(description->transpose_a), tb = is_transposed(description->transpose_b);
    const std::uint64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    const std::uint64_t n = tb ? b->rows : b->columns, k_of_b = tb ? b->columns : b->rows;
    if (k != k_of_b || d->rows != m || d->columns != n || c->rows != m || c->columns != n)
        return CUBLAS_STATUS_INVALID_VALUE;

    const auto a_kind = kind_of(a->type), b_kind = kind_of(b->type), d_kind = kind_of(d->type);
    if (!a_kind || !b_kind || !d_kind || *a_kind != *b_kind || c->type != d->type) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (*d_kind != *a_kind && *d_kind != ElementKind::float32) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (description->scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool tf32 = description->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (!tf32 && description->compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (tf32 && *a_kind != ElementKind::float32) return CUBLAS_STATUS_NOT_SUPPORTED;
    switch (description->epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_RELU: break;
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_RELU_BIAS:
            if (description->bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
            break;
        default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (const cublasLtMatrixLayout* layout : {a, b, d}) {
        if (*a_kind != ElementKind::float32 &&
            layout->leading_dimension * bytes_of(*kind_of(layout->type)) % pair_bytes)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    product = {.m = static_cast<std::int64_t>(m),
               .n = static_cast<std::int64_t>(n),
               .k = static_cast<std::int64_t>(k),
               .a = *a_kind,
               .b = *b_kind,
               .d = *d_kind,
               .a_row = ta ? a->leading_dimension : 1,
               .a_column = ta ? 1 : a->leading_dimension,
               .b_row = tb ? b->leading_dimension : 1,
               .b_column = tb ? 1 : b->leading_dimension,
               .c_column = c->leading_dimension,
               .d_column = d->leading_dimension,
               .tf32 = tf32,
               .bias = (description->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0,
               .relu = (description->epilogue & CUBLASLT_EPILOGUE_RELU) != 0};
    return CUBLAS_STATUS_SUCCESS;
}

/// The algorithms, best first. The ranking differs with a ReLU, so a caller that needs the same bits with and without
/// fusion has to select the same algorithm.
[[nodiscard]] std::vector<Algorithm> algorithms_for(const Product& product, const cublasLtMatmulPreference& wanted) {
    const auto make = [&](std::int64_t splits, bool rounds_parts) {
        return Algorithm{splits, rounds_parts, wanted.alignments, product.hash()};
    };
    std::vector<Algorithm> ranked;
    if ((wanted.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0 && product.k >= 8)
        ranked.push_back(make(4, true));
    if ((wanted.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 && product.k >= 8) {
        ranked.push_back(make(product.relu ? 3 : 2, false));
        ranked.push_back(make(product.relu ? 2 : 3, false));
    }
    ranked.push_back(make(1, false));
    std::erase_if(ranked, [&](const Algorithm& a) { return a.workspace(product) > wanted.max_workspace; });
    return ranked;
}

[[nodiscard]] cublasLtMatmulHeuristicResult_t result_of(const Algorithm& algorithm, const Product& product) {
    return {.algo = algorithm.packed(),
            .workspaceSize = algorithm.workspace(product),
            .state = CUBLAS_STATUS_SUCCESS,
            .wavesCount = 1.0F,
            .reserved = {}};
}

/// The operand op() as floats, in contiguous rows of `across` elements.
[[nodiscard]] std::vector<float> gathered(const void* from, ElementKind kind, std::int64_t along,
                                          std::int64_t along_step, std::int64_t across, std::int64_t across_step,
                                          bool tf32) {
    std::vector<float> result;
    result.reserve(static_cast<std::size_t>(along * across));
    for (std::int64_t i = 0; i < along; ++i)
        for (std::int64_t j = 0; j < across; ++j) {
            const float value = load(from, kind, i * along_step + j * across_step);
            result.push_back(tf32 ? rounded_to_tf32(value) : value);
        }
    return result;
}

struct Operands {
    const void *a, *b, *c;
    void* d;
    const void* bias;
    float alpha, beta;
    float* parts;
};

/// Computes D column by column: each is a weighted sum of the columns of A.
void multiply(const Product& p, const Algorithm& algorithm, const Operands& at) {
    const auto mn = static_cast<std::size_t>(p.m * p.n);
    std::vector<float> own(algorithm.splits == 1 ? mn : 0);
    float* const parts = algorithm.splits == 1 ? own.data() : at.parts;
    const std::vector<float> a = gathered(at.a, p.a, p.k, p.a_column, p.m, p.a_row, p.tf32);
    const std::vector<float> b = gathered(at.b, p.b, p.n, p.b_column, p.k, p.b_row, p.tf32);
    if (algorithm.splits > 1) std::memset(parts, 0xFF, algorithm.workspace(p));
    const std::int64_t part_size = (p.k + algorithm.splits - 1) / algorithm.splits;
    for (std::int64_t part = 0; part < algorithm.splits; ++part) {
        float* const sums = parts + static_cast<std::size_t>(part) * mn;
        std::fill_n(sums, mn, 0.0F);
        const std::int64_t begin = part * part_size, end = std::min(p.k, begin + part_size);
        for (std::int64_t j = 0; j < p.n; ++j) {
            float* const column = sums + j * p.m;
            for (std::int64_t l = begin; l < end; ++l) {
                const float factor = b[static_cast<std::size_t>(j * p.k + l)];
                const float* const terms = a.data() + l * p.m;
#pragma omp simd
                for (std::int64_t i = 0; i < p.m; ++i) column[i] += factor * terms[i];
            }
        }
    }

    std::vector<float> before(at.beta == 0 ? 0 : mn);
    for (std::size_t i = 0; i < before.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) % p.m, column = static_cast<std::int64_t>(i) / p.m;
        before[i] = load(at.c, p.d, column * p.c_column + row);
    }
    for (std::int64_t j = 0; j < p.n; ++j)
        for (std::int64_t i = 0; i < p.m; ++i) {
            const auto place = static_cast<std::size_t>(j * p.m + i);
            float sum = 0;
            for (std::int64_t part = 0; part < algorithm.splits; ++part) {
                const float addend = parts[static_cast<std::size_t>(part) * mn + place];
                const bool rounds = algorithm.rounds_parts;
                sum += !rounds                       ? addend
                       : p.a == ElementKind::float16 ? rounded_to_float16(addend)
                                                     : rounded_to_bfloat16(addend);
            }
            float value = at.alpha * sum;
            if (at.beta != 0) value += at.beta * before[place];
            if (p.bias) value += load(at.bias, p.d, i);
            if (p.relu) value = value > 0.0F ? value : 0.0F;  // a NaN becomes 0, which the library allows
            store(at.d, p.d, j * p.d_column + i, value);
        }
    if (algorithm.splits > 1) std::memset(parts, 0xFF, algorithm.workspace(p));
}

[[nodiscard]] bool aligned_to(const void* pointer, std::uint64_t bytes) {
    return bytes == 0 || reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// Copies an attribute if its size is that of V.
template <class V>
[[nodiscard]] cublasStatus_t take(V& to, const void* value, std::size_t bytes) {
    if (bytes != sizeof(V)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, sizeof(V));
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
[[nodiscard]] cublasStatus_t destroyed(T* object) {
    delete object;
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion(void) { return 130100; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "success";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
        case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
        default: return "unrecognized status";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        cudaGetLastError();
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = new cublasLtContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (handle != nullptr && handle->device != current_device())
        misuse("cublasLtDestroy was called for another device");
    return destroyed(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading_dimension) {
    if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new cublasLtMatrixLayout{type, rows, columns, leading_dimension};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroyed(layout); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType scale) {
    if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *description = new cublasLtMatmulDesc{compute, scale};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return destroyed(description); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
    if (description == nullptr || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA: return take(description->transpose_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return take(description->transpose_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(description->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(description->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *preference = new cublasLtMatmulPreference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroyed(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
    if (preference == nullptr || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(preference->max_workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(preference->reductions, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(preference->alignments[0], value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(preference->alignments[1], value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(preference->alignments[2], value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(preference->alignments[3], value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (preference == nullptr || results == nullptr || count == nullptr || requested <= 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    *count = 0;
    Product product;
    if (const cublasStatus_t status = product_of(description, a, b, c, d, product); status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (const Algorithm& algorithm : algorithms_for(product, *preference)) {
        if (*count < requested) results[(*count)++] = result_of(algorithm, product);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (algorithm == nullptr || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Product product;
    if (const cublasStatus_t status = product_of(description, a, b, c, d, product); status != CUBLAS_STATUS_SUCCESS)
        return status;
    const std::optional<Algorithm> unpacked = Algorithm::unpacked(*algorithm);
    if (!unpacked) return CUBLAS_STATUS_INVALID_VALUE;
    if (unpacked->shape != product.hash()) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = result_of(*unpacked, product);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t bytes, size_t* written) {
    if (algorithm == nullptr || value == nullptr || attribute != CUBLASLT_ALGO_CONFIG_ID)
        return CUBLAS_STATUS_INVALID_VALUE;
    const std::optional<Algorithm> unpacked = Algorithm::unpacked(*algorithm);
    if (!unpacked || bytes != sizeof(std::int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
    const auto number = static_cast<std::int32_t>(unpacked->splits);
    std::memcpy(value, &number, sizeof number);
    if (written != nullptr) *written = sizeof number;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    Product product;
    if (const cublasStatus_t status = product_of(description, a_layout, b_layout, c_layout, d_layout, product);
        status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr || algorithm == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    Operands operands{a, b, c, d, description->bias, 0, 0, static_cast<float*>(workspace)};
    std::memcpy(&operands.alpha, alpha, sizeof(float));
    std::memcpy(&operands.beta, beta, sizeof(float));
    if (operands.beta != 0 && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const std::optional<Algorithm> unpacked = Algorithm::unpacked(*algorithm);
    if (!unpacked) return CUBLAS_STATUS_INVALID_VALUE;
    if (unpacked->shape != product.hash()) return CUBLAS_STATUS_NOT_SUPPORTED;
    const auto& alignments = unpacked->alignments;
    if (!aligned_to(a, alignments[0]) || !aligned_to(b, alignments[1]) || !aligned_to(d, alignments[3]) ||
        (operands.beta != 0 && !aligned_to(c, alignments[2])))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (product.bias && !aligned_to(description->bias, alignments[3])) return CUBLAS_STATUS_INVALID_VALUE;
    if (const std::size_t needed = unpacked->workspace(product); needed > 0) {
        if (workspace == nullptr || workspace_bytes < needed) return CUBLAS_STATUS_INVALID_VALUE;
        if (!aligned_to(workspace, workspace_alignment)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (current_device() != handle->device) return CUBLAS_STATUS_EXECUTION_FAILED;
    std::vector<const void*> addresses{a, b, d};
    if (product.bias) addresses.push_back(description->bias);
    if (operands.beta != 0) addresses.push_back(c);
    if (unpacked->splits > 1) addresses.push_back(workspace);
    for (const void* address : addresses) {
        if (!is_reached_by(handle->device, address)) return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    const EngineBehavior behavior = product_behavior(unpacked->splits);
    if (behavior.fails) return CUBLAS_STATUS_EXECUTION_FAILED;
    count_library_call();
    const LibraryCost cost{.bytes_read = product.m * product.k * bytes_of(product.a) +
                                         product.k * product.n * bytes_of(product.b) +
                                         (operands.beta != 0 ? product.m * product.n * bytes_of(product.d) : 0),
                           .bytes_written = product.m * product.n * bytes_of(product.d),
                           .operations = 2 * product.m * product.n * product.k,
                           .workspace = workspace,
                           .workspace_bytes = unpacked->workspace(product)};
    enqueue(
        stream,
        [product, chosen = *unpacked, operands,
         seconds = queued_seconds(stream, behavior.seconds,
                                  behavior.host_seconds + load_seconds("cuBLASLt", unpacked->splits))] {
            multiply(product, chosen, operands);
            take_seconds(seconds);
            return true;
        },
        "cublasLtMatmul, " + std::to_string(product.m) + " x " + std::to_string(product.n) + " by " +
            std::to_string(product.k),
        cost);
    return cudaPeekAtLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
