// SPDX-License-Identifier: Apache-2.0
//
// One matrix product by cuBLASLt, set up once and run many times: D = op(A) op(B), with an optional bias and ReLU, or D
// = D + op(A) op(B).
//
// Matrices are column-major without gaps, as in cuBLASLt; a row-major matrix is the transpose of such a matrix. The
// bias has one element per row of D, in D's type. Sums split over thread blocks are added in a fixed order, so the bits
// are the same each time for the same algorithm. The algorithm is the fastest on the device or, where nothing is timed,
// cuBLASLt's first.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/plan_choices.hpp>
#include <cupola/ops/cuda/impl/plan_timer.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

    [[nodiscard]] std::size_t bytes() const {
        return static_cast<std::size_t>(rows * columns) * (type == CUDA_R_32F ? sizeof(float) : sizeof(BFloat16));
    }
};

using CublasDescription = CudaHandle<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using CublasLayout = CudaHandle<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using CublasPreference = CudaHandle<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

/// nvcc 13 cannot instantiate a container of cublasLtMatmulAlgo_t, whose struct has no name.
struct CublasAlgorithm {
    cublasLtMatmulAlgo_t value{};
};

class CublasProduct {
public:
    /// The alignment of the addresses of all operands, as vector loads and tensor maps require.
    static constexpr std::size_t operand_alignment = 16;
    /// The maximum size of the memory for split sums, which NVIDIA recommends for Hopper.
    static constexpr std::size_t max_workspace = std::size_t{32} << 20;

    enum class Epilogue : std::uint8_t { none, bias, relu, bias_relu };

    /// No product: found() is false.
    CublasProduct() = default;

    /// Chooses an algorithm of cuBLASLt. With `rectifiable` it is chosen, timed and kept as if the product had a ReLU,
    /// so that fusing a ReLU changes no other bits.
    [[gnu::cold]] CublasProduct(const CudaContext& context, const CublasMatrix& a, const CublasMatrix& b,
                                const CublasMatrix& d, Epilogue epilogue, bool rectifiable)
        : tf32_(a.type == CUDA_R_32F && context.options().tf32),
          max_workspace_(std::min(context.max_workspace(), max_workspace)) {
        const cublasComputeType_t compute = tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        check_cublas(cublasLtMatmulDescCreate(description_.out(), compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
        set(CUBLASLT_MATMUL_DESC_TRANSA, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_TRANSB, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        has_bias_ = epilogue == Epilogue::bias || epilogue == Epilogue::bias_relu;
        make(a_, a);
        make(b_, b);
        make(d_, d);
        const Epilogue rectified = has_bias_ ? Epilogue::bias_relu : Epilogue::relu;
        if (rectifiable && epilogue != rectified) {
            found_ = choose(context, a, b, d, rectified, epilogue);
            if (found_) return;
        }
        found_ = choose(context, a, b, d, epilogue, epilogue);
    }

    /// Whether cuBLASLt has an algorithm for these matrices.
    [[nodiscard]] bool found() const { return found_; }
    /// Bytes of the memory to pass to `run`, at a multiple of Cuda::scratch_alignment.
    [[nodiscard]] std::size_t workspace_bytes() const { return workspace_; }
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
        check_cublas(cublasLtMatmul(context.cublas(), description_.get(), &one, a, a_.get(), b, b_.get(), &beta, d,
                                    d_.get(), d, d_.get(), &algorithm_.value, workspace_ > 0 ? workspace : nullptr,
                                    workspace_, context.stream_of_library()),
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

    using Algorithms = std::vector<CublasAlgorithm>;

    /// Chooses for the epilogue `timed` an algorithm that supports `used` too. False if there is none.
    [[gnu::cold]] bool choose(const CudaContext& context, const CublasMatrix& a, const CublasMatrix& b,
                              const CublasMatrix& d, Epilogue timed, Epilogue used) {
        // The address only gives the alignment of the bias; nothing is read from it.
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        if (has_bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(operand_alignment));
        PlanChoices& choices = context.plan_choices();
        const std::string key = key_of(context, a, b, d, timed);
        std::optional<EngineChoice> rejected;
        if (take_kept(context, choices, key, timed, used, rejected)) return true;
        const std::unique_lock<std::mutex> measuring = choices.measure();
        if (take_kept(context, choices, key, timed, used, rejected)) return true;  // chosen meanwhile
        PlanRecord record{.key = key};
        if (!choose_new(context, a, b, d, timed, used, record)) return false;
        record.choice = choice_of(algorithm_);
        record.name = text("algorithm ", record.choice.engine);
        choices.set(key, record.choice);
        choices.record(std::move(record));
        return true;
    }

    [[gnu::cold]] bool take_kept(const CudaContext& context, PlanChoices& choices, const std::string& key,
                                 Epilogue timed, Epilogue used, std::optional<EngineChoice>& rejected) {
        const std::optional<EngineChoice> kept = choices.find(key);
        if (!kept || kept == rejected) return false;
        const std::optional<CublasAlgorithm> algorithm = algorithm_of(*kept);
        if (algorithm && supports(context, *algorithm, timed, used)) {
            algorithm_ = *algorithm;
            choices.record({.key = key,
                            .choice = *kept,
                            .name = text("algorithm ", kept->engine),
                            .source = PlanRecord::Source::kept});
            return true;
        }
        choices.note(text("the kept algorithm ", kept->engine, " of ", key, " cannot be used: another is chosen"));
        rejected = kept;
        return false;
    }

    [[gnu::cold]] bool choose_new(const CudaContext& context, const CublasMatrix& a, const CublasMatrix& b,
                                  const CublasMatrix& d, Epilogue timed, Epilogue used, PlanRecord& record) {
        set_epilogue(timed);
        const Algorithms offered = search(context);
        const PlanTrial trial{.stream = context.stream(),
                              .seconds = context.options().plan_seconds,
                              .tensors = {a.bytes(), b.bytes(), d.bytes(), has_bias_ ? d.bytes() : 0}};
        PlanTimer timer(offered.empty() ? nullptr : &trial);
        if (!timer.why().empty())
            context.plan_choices().note(text("no candidate is timed for the plan of ", record.key, ": ", timer.why()));
        struct Candidate {
            CublasAlgorithm algorithm;
            std::size_t workspace;
        };
        std::vector<Candidate> candidates;  // those that were timed, or the first
        const auto run_it = [&](std::byte* memory, std::span<const void* const> tensors) {
            run(context, tensors[0], tensors[1], const_cast<void*>(tensors[2]), has_bias_ ? tensors[3] : nullptr, false,
                memory);
        };
        for (const CublasAlgorithm& algorithm : offered) {
            if (timer.is_over()) {
                ++record.not_timed;
                continue;
            }
            if (!supports(context, algorithm, timed, used)) continue;
            if (timer.times()) {
                algorithm_ = algorithm;
                set_epilogue(timed);
                if (timer.offer(workspace_bytes(), run_it) != PlanTimer::Result::timed) continue;
                record.candidates.push_back(
                    {text("algorithm ", choice_of(algorithm).engine, ", workspace ", workspace_)});
            }
            candidates.push_back({algorithm, workspace_});
            if (!timer.times()) break;
        }
        std::size_t chosen = 0;
        if (timer.timed() > 0) {
            chosen = timer.choose([&](std::size_t candidate, std::byte* memory, std::span<const void* const> tensors) {
                algorithm_ = candidates[candidate].algorithm;
                workspace_ = candidates[candidate].workspace;
                set_epilogue(timed);
                run_it(memory, tensors);
            });
        }
        record.source = timer.times() ? PlanRecord::Source::timed : PlanRecord::Source::first;
        record.seconds = timer.seconds();
        record.next_seconds = timer.next_seconds();
        record.timed = timer.timed();
        for (std::size_t i = 0; i < record.candidates.size(); ++i) record.candidates[i].seconds = timer.seconds_of(i);
        set_epilogue(used);
        if (candidates.empty()) return false;
        algorithm_ = candidates[chosen].algorithm;
        workspace_ = candidates[chosen].workspace;
        return true;
    }

    /// cuBLASLt's algorithms for the current description, in the order of its heuristic.
    [[gnu::cold]] Algorithms search(const CudaContext& context) {
        CublasPreference preference;
        check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
            check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                         "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{max_workspace_});
        // A split sum keeps its parts in float and adds them in order.
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
        for (const auto attribute :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
            prefer(attribute, std::uint32_t{operand_alignment});
        }
        std::array<cublasLtMatmulHeuristicResult_t, 32> results{};
        int count = 0;
        const cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(context.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                           preference.get(), static_cast<int>(results.size()), results.data(), &count);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
        check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
        Algorithms offered;
        for (int i = 0; i < count; ++i) {
            const auto& result = results[static_cast<std::size_t>(i)];
            if (result.state == CUBLAS_STATUS_SUCCESS) offered.push_back({result.algo});
        }
        return offered;
    }
    /// Whether an algorithm supports both epilogues within the limit of workspace; workspace_ is then what they need.
    [[gnu::cold]] bool supports(const CudaContext& context, const CublasAlgorithm& algorithm, Epilogue one,
                                Epilogue other) {
        workspace_ = 0;
        for (const Epilogue epilogue : {one, other}) {
            set_epilogue(epilogue);
            cublasLtMatmulHeuristicResult_t result{};
            if (cublasLtMatmulAlgoCheck(context.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                        &algorithm.value, &result) != CUBLAS_STATUS_SUCCESS) {
                return false;
            }
            if (result.workspaceSize > max_workspace_) return false;
            workspace_ = std::max(workspace_, result.workspaceSize);
        }
        return true;
    }

    /// The words of an algorithm, which NVIDIA allows to be stored for the same version of cuBLASLt, and its number.
    [[nodiscard, gnu::cold]] static EngineChoice choice_of(const CublasAlgorithm& algorithm) {
        EngineChoice choice;
        std::int32_t number = 0;
        std::size_t written = 0;
        check_cublas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm.value, CUBLASLT_ALGO_CONFIG_ID, &number,
                                                          sizeof number, &written),
                     "cublasLtMatmulAlgoConfigGetAttribute");
        choice.engine = number;
        for (std::size_t i = 0; i < std::size(algorithm.value.data); ++i)
            choice.knobs.emplace_back(static_cast<std::int64_t>(i), static_cast<std::int64_t>(algorithm.value.data[i]));
        return choice;
    }
    /// Empty if the words are not those of one algorithm.
    [[nodiscard, gnu::cold]] static std::optional<CublasAlgorithm> algorithm_of(const EngineChoice& choice) {
        CublasAlgorithm algorithm{};
        if (choice.knobs.size() != std::size(algorithm.value.data)) return std::nullopt;
        for (std::size_t i = 0; i < choice.knobs.size(); ++i) {
            if (choice.knobs[i].first != static_cast<std::int64_t>(i)) return std::nullopt;
            algorithm.value.data[i] = static_cast<std::uint64_t>(choice.knobs[i].second);
        }
        return algorithm;
    }

    /// "cuBLASLt 130100, NVIDIA H200, product in bfloat16 to float32: 192 x 384 transposed by 384 x 128, bias, ReLU",
    /// with the extents in memory.
    [[nodiscard, gnu::cold]] std::string key_of(const CudaContext& context, const CublasMatrix& a,
                                                const CublasMatrix& b, const CublasMatrix& d, Epilogue epilogue) const {
        const auto name = [](cudaDataType_t type) -> std::string_view {
            return type == CUDA_R_32F ? "float32" : type == CUDA_R_16BF ? "bfloat16" : "float16";
        };
        const auto extents = [](const CublasMatrix& m) {
            return text(m.rows, " x ", m.columns, m.transposed ? " transposed" : "");
        };
        constexpr std::array<std::string_view, 4> epilogues{"", ", bias", ", ReLU", ", bias, ReLU"};
        return text("cuBLASLt ", static_cast<std::int64_t>(cublasLtGetVersion()), ", ", context.gpu_name(), ", ",
                    tf32_ ? "TF32, " : "", "product in ", name(a.type), " to ", name(d.type), ": ", extents(a), " by ",
                    extents(b), epilogues[static_cast<std::size_t>(epilogue)]);
    }

    CublasDescription description_;
    CublasLayout a_, b_, d_;
    CublasAlgorithm algorithm_{};
    bool tf32_ = false;
    std::size_t max_workspace_ = max_workspace, workspace_ = 0;
    bool found_ = false, has_bias_ = false;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
