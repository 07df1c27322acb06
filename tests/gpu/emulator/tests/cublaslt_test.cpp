// SPDX-License-Identifier: Apache-2.0
//
// Compares the stand-in for cuBLASLt with plain loops in double, and checks what it rejects.
#include "../../../test.hpp"

#include <cublasLt.h>

#include "../../../reference/linear.hpp"
#include "../../../reference/relu.hpp"
#include "../control.hpp"
#include "device_memory.hpp"

using namespace emulator_tests;
using reference::Floats;

namespace {

/// D (m x n) = op(A) (m x k) op(B) (k x n); `gap` elements follow each column of each matrix.
struct Case {
    std::int64_t m, n, k;
    bool transposed_a = false, transposed_b = false;
    cudaDataType factors = CUDA_R_32F, result = CUDA_R_32F;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    float alpha = 1, beta = 0;
    std::int64_t gap = 0;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

std::string describe(const Case& c) {
    return std::to_string(c.m) + " x " + std::to_string(c.n) + ", depth " + std::to_string(c.k) +
           (c.transposed_a ? ", A transposed" : "") + (c.transposed_b ? ", B transposed" : "") + ", types " +
           std::to_string(c.factors) + " and " + std::to_string(c.result) + ", epilogue " + std::to_string(c.epilogue) +
           ", alpha " + std::to_string(c.alpha) + ", beta " + std::to_string(c.beta) + ", gap " + std::to_string(c.gap);
}

/// Numbers that bfloat16 and half represent exactly.
Floats few_bits(std::int64_t count, std::uint64_t seed) {
    reference::Random random(seed);
    Floats values = random.normal(count, 1.0, 0.5);
    for (float& value : values) value = static_cast<float>(static_cast<int>(value * 32.0F)) / 32.0F;
    return values;
}

/// A product with its descriptors, each of which a test can change.
struct Product : NotCopied {
    explicit Product(const Case& of_case, std::uint64_t seed) : c(of_case) {
        const std::int64_t a_rows = c.transposed_a ? c.k : c.m, a_columns = c.transposed_a ? c.m : c.k;
        const std::int64_t b_rows = c.transposed_b ? c.n : c.k, b_columns = c.transposed_b ? c.k : c.n;
        CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        CHECK(cublasLtMatmulDescCreate(&description, c.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
        set(CUBLASLT_MATMUL_DESC_TRANSA, c.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_TRANSB, c.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
        const auto make = [&](cublasLtMatrixLayout_t& layout, cudaDataType type, std::int64_t rows,
                              std::int64_t columns) {
            CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                             static_cast<std::uint64_t>(columns),
                                             rows + c.gap) == CUBLAS_STATUS_SUCCESS);
        };
        make(a_layout, c.factors, a_rows, a_columns);
        make(b_layout, c.factors, b_rows, b_columns);
        make(d_layout, c.result, c.m, c.n);
        CHECK(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 24);
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
        for (const auto attribute :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
            prefer(attribute, std::uint32_t{16});

        a_values = few_bits(a_rows * a_columns, seed);
        b_values = few_bits(b_rows * b_columns, seed + 1);
        d_values = few_bits(c.m * c.n, seed + 2);
        bias_values = few_bits(c.m, seed + 3);
        a.write(a_values, c.factors, a_rows, c.gap);
        b.write(b_values, c.factors, b_rows, c.gap);
        d.write(d_values, c.result, c.m, c.gap);
        bias.write(bias_values, c.result, c.m, 0);
        if ((c.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    }
    ~Product() {
        cublasLtMatmulPreferenceDestroy(preference);
        for (const cublasLtMatrixLayout_t layout : {a_layout, b_layout, d_layout}) cublasLtMatrixLayoutDestroy(layout);
        cublasLtMatmulDescDestroy(description);
        cublasLtDestroy(handle);
    }

    template <class V>
    void set(cublasLtMatmulDescAttributes_t attribute, const V& value) {
        CHECK(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
    }
    template <class V>
    void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const V& value) {
        CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) ==
              CUBLAS_STATUS_SUCCESS);
    }
    cublasStatus_t search() {
        results.resize(8);
        int count = 0;
        const cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(handle, description, a_layout, b_layout, d_layout, d_layout, preference,
                                           static_cast<int>(results.size()), results.data(), &count);
        results.resize(static_cast<std::size_t>(count));
        return status;
    }
    cublasStatus_t queue(std::size_t algorithm, const void* at_a, std::size_t workspace_bytes) {
        return cublasLtMatmul(handle, description, &c.alpha, at_a, a_layout, b.get(), b_layout, &c.beta, d.get(),
                              d_layout, d.get(), d_layout, &results[algorithm].algo, workspace.get(), workspace_bytes,
                              stream);
    }
    cublasStatus_t run(std::size_t algorithm) {
        workspace.resize(results[algorithm].workspaceSize);
        const cublasStatus_t status = queue(algorithm, a.get(), results[algorithm].workspaceSize);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        return status;
    }

    /// In the layout of the reference, row by row: the columns of op(B) are samples, the rows of op(A) are outputs.
    [[nodiscard]] reference::Doubles expected() const {
        const auto at = [](const Floats& values, std::int64_t rows, std::int64_t row, std::int64_t column) {
            return values[static_cast<std::size_t>(column * rows + row)];
        };
        Floats samples, outputs;
        for (std::int64_t j = 0; j < c.n; ++j)
            for (std::int64_t l = 0; l < c.k; ++l)
                samples.push_back(c.transposed_b ? at(b_values, c.n, j, l) : at(b_values, c.k, l, j));
        for (std::int64_t i = 0; i < c.m; ++i)
            for (std::int64_t l = 0; l < c.k; ++l)
                outputs.push_back(c.transposed_a ? at(a_values, c.k, l, i) : at(a_values, c.m, i, l));
        const reference::Linear linear{static_cast<std::size_t>(c.n), static_cast<std::size_t>(c.k),
                                       static_cast<std::size_t>(c.m)};
        reference::Doubles result = linear.forward(samples, outputs, {});
        for (std::size_t i = 0; i < result.size(); ++i) {
            result[i] = static_cast<double>(c.alpha) * result[i] +
                        static_cast<double>(c.beta) * static_cast<double>(d_values[i]);
            if ((c.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
                result[i] += static_cast<double>(bias_values[i % bias_values.size()]);
        }
        return (c.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 ? reference::relu(result) : result;
    }
    [[nodiscard]] Floats read() { return d.read(c.result, c.m, c.gap); }

    Case c;
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    Floats a_values, b_values, d_values, bias_values;
    DeviceMemory a, b, d, bias, workspace;
    Stream stream;
    std::vector<cublasLtMatmulHeuristicResult_t> results;
};

double tolerance(const Case& c) {
    if (c.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return 1e-3;
    return c.result == CUDA_R_16BF ? 3e-3 : c.result == CUDA_R_16F ? 5e-4 : 1e-6;
}

std::vector<Case> cases() {
    std::vector<Case> result;
    const std::vector<std::array<std::int64_t, 3>> shapes{{1, 1, 1},    {1, 7, 5},    {5, 1, 9},   {10, 3, 192},
                                                          {64, 17, 16}, {20, 33, 37}, {16, 16, 8}, {384, 4, 128}};
    std::size_t i = 0;
    for (const auto& [m, n, k] : shapes)
        for (const bool ta : {false, true})
            for (const bool tb : {false, true}) {
                Case c{.m = m, .n = n, .k = k, .transposed_a = ta, .transposed_b = tb};
                constexpr std::array<cublasLtEpilogue_t, 4> epilogues{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                                      CUBLASLT_EPILOGUE_RELU,
                                                                      CUBLASLT_EPILOGUE_RELU_BIAS};
                c.epilogue = epilogues[i % 4];
                c.beta = i % 3 == 0 ? 0.5F : 0.0F;
                c.alpha = i % 5 == 0 ? -2.0F : 1.0F;
                c.gap = i % 7 == 2 ? 12 : 0;
                ++i;
                result.push_back(c);
                if (m % 2 != 0 || n % 2 != 0 || k % 2 != 0) continue;
                c.factors = i % 2 == 0 ? CUDA_R_16BF : CUDA_R_16F;
                result.push_back(c);  // the gradient of weights is float
                c.result = c.factors;
                result.push_back(c);
            }
    return result;
}

}  // namespace

TEST_CASE("each algorithm of the emulator's cuBLASLt agrees with plain loops, and writes nothing beside its result") {
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        Product product(c, seed);
        REQUIRE(product.search() == CUBLAS_STATUS_SUCCESS);
        CHECK(product.results.size() == (c.k >= 8 ? 3 : 1));
        for (std::size_t i = 0; i < product.results.size(); ++i) {
            product.d.write(product.d_values, c.result, c.m, c.gap);
            CHECK(product.run(i) == CUBLAS_STATUS_SUCCESS);
            CHECK(reference::distance(product.read(), product.expected()) < tolerance(c));
            CHECK(product.d.gaps_intact(c.result, c.m, c.gap));
        }
    }
    CHECK(cupola::emulator::overruns() == 0);
}

TEST_CASE("sums of bfloat16 and half are float in the emulator's cuBLASLt, and TF32 shows in float") {
    Case c{.m = 16, .n = 16, .k = 2048, .transposed_a = true, .factors = CUDA_R_16BF};
    for (const bool rounds_parts : {false, true}) {
        Product product(c, 7);
        if (rounds_parts)
            product.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
        REQUIRE(product.search() == CUBLAS_STATUS_SUCCESS);
        CHECK(product.run(0) == CUBLAS_STATUS_SUCCESS);
        const double distance = reference::distance(product.read(), product.expected());
        CHECK(distance < (rounds_parts ? 1e-2 : 1e-5));
        if (rounds_parts) CHECK(distance > 1e-5);
    }
    c.factors = CUDA_R_32F;
    c.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    Product product(c, 7);
    for (float& value : product.a_values) value *= 1.0F + 1.0F / 3000;
    product.a.write(product.a_values, c.factors, c.k, 0);
    REQUIRE(product.search() == CUBLAS_STATUS_SUCCESS);
    CHECK(product.run(0) == CUBLAS_STATUS_SUCCESS);
    const double distance = reference::distance(product.read(), product.expected());
    CHECK(distance > 1e-5);
    CHECK(distance < 1e-3);
}

TEST_CASE("the emulator's cuBLASLt does nothing at the call, and once for each launch of a capture") {
    cupola::emulator::set_eager(false);
    const Case c{.m = 8, .n = 4, .k = 16, .beta = 1};
    Product product(c, 3);
    REQUIRE(product.search() == CUBLAS_STATUS_SUCCESS);
    product.workspace.resize(product.results[0].workspaceSize);
    const std::vector<std::byte> before = product.d.peek();
    const auto queue = [&] {
        CHECK(product.queue(0, product.a.get(), product.results[0].workspaceSize) == CUBLAS_STATUS_SUCCESS);
    };
    queue();
    CHECK(product.d.peek() == before);
    CHECK(cudaStreamSynchronize(product.stream) == cudaSuccess);
    const Floats once = product.read();
    CHECK(reference::distance(once, product.expected()) < 1e-6);

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaStreamBeginCapture(product.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    queue();
    CHECK(cudaStreamEndCapture(product.stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(cudaStreamSynchronize(product.stream) == cudaSuccess);
    CHECK(reference::same_bits(product.read(), once));
    for (int launches = 0; launches < 2; ++launches) CHECK(cudaGraphLaunch(exec, product.stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(product.stream) == cudaSuccess);
    const reference::Doubles after_one = product.expected();
    reference::Doubles after_three(after_one.size());
    for (std::size_t i = 0; i < after_one.size(); ++i)
        after_three[i] = 3 * after_one[i] - 2 * static_cast<double>(product.d_values[i]);
    CHECK(reference::distance(product.read(), after_three) < 1e-6);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    cupola::emulator::set_eager(true);
}

TEST_CASE("the emulator's cuBLASLt rejects what does not fit together, and what it has no algorithm for") {
    const Case good{.m = 8, .n = 4, .k = 16, .epilogue = CUBLASLT_EPILOGUE_BIAS};
    const auto search = [](Product& product) { return product.search(); };
    {
        Product product(good, 1);
        cublasLtMatrixLayoutDestroy(product.b_layout);
        CHECK(cublasLtMatrixLayoutCreate(&product.b_layout, CUDA_R_32F, 15, 4, 15) == CUBLAS_STATUS_SUCCESS);
        CHECK(search(product) == CUBLAS_STATUS_INVALID_VALUE);
        cublasLtMatrixLayoutDestroy(product.b_layout);
        CHECK(cublasLtMatrixLayoutCreate(&product.b_layout, CUDA_R_32F, 16, 4, 15) == CUBLAS_STATUS_SUCCESS);
        CHECK(search(product) == CUBLAS_STATUS_INVALID_VALUE);
        cublasLtMatrixLayoutDestroy(product.b_layout);
        CHECK(cublasLtMatrixLayoutCreate(&product.b_layout, CUDA_R_16F, 16, 4, 16) == CUBLAS_STATUS_SUCCESS);
        CHECK(search(product) == CUBLAS_STATUS_NOT_SUPPORTED);
    }
    {
        Product product(good, 1);
        product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(nullptr));
        CHECK(search(product) == CUBLAS_STATUS_INVALID_VALUE);
        product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{1024});
        CHECK(search(product) == CUBLAS_STATUS_NOT_SUPPORTED);
    }
    Product odd({.m = 7, .n = 4, .k = 16, .factors = CUDA_R_16BF, .result = CUDA_R_16BF}, 1);
    CHECK(search(odd) == CUBLAS_STATUS_NOT_SUPPORTED);

    Product product(good, 1);
    REQUIRE(search(product) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(product.results[0].workspaceSize > 0);
    const std::size_t needed = product.results[0].workspaceSize;
    product.workspace.resize(needed + 512);
    const cudaStream_t stream = product.stream;
    CHECK(product.queue(0, product.a.get(), needed - 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(product.queue(0, product.a.get() + 4, needed) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(product.queue(0, nullptr, needed) == CUBLAS_STATUS_INVALID_VALUE);
    alignas(16) std::array<std::byte, 16> of_host{};
    CHECK(product.queue(0, of_host.data(), needed) == CUBLAS_STATUS_EXECUTION_FAILED);
    product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(product.bias.get() + 4));
    CHECK(product.queue(0, product.a.get(), needed) == CUBLAS_STATUS_INVALID_VALUE);
    product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(product.bias.get()));
    CHECK(product.queue(0, product.a.get(), needed) == CUBLAS_STATUS_SUCCESS);
    // An algorithm is valid only for the shape for which it was found.
    product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    cublasLtMatrixLayoutDestroy(product.a_layout);
    CHECK(cublasLtMatrixLayoutCreate(&product.a_layout, CUDA_R_32F, 16, 8, 16) == CUBLAS_STATUS_SUCCESS);
    CHECK(product.queue(0, product.a.get(), needed) == CUBLAS_STATUS_NOT_SUPPORTED);
    cublasLtMatmulHeuristicResult_t result{};
    CHECK(cublasLtMatmulAlgoCheck(product.handle, product.description, product.a_layout, product.b_layout,
                                  product.d_layout, product.d_layout, &product.results[0].algo,
                                  &result) == CUBLAS_STATUS_NOT_SUPPORTED);
    product.results[0].algo = {};
    CHECK(product.queue(0, product.a.get(), needed) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(search(product) == CUBLAS_STATUS_SUCCESS);
    CHECK(product.queue(0, product.a.get(), needed) == CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}
