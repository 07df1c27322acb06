// SPDX-License-Identifier: Apache-2.0
//
// One oneDNN primitive, ready to run: its description, its memory objects and its arguments. Pointers are set before
// each call; nothing is created after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class T>
inline constexpr dnnl_data_type_t dnnl_type = dnnl_data_type_undef;
template <>
inline constexpr dnnl_data_type_t dnnl_type<float> = dnnl_f32;
template <>
inline constexpr dnnl_data_type_t dnnl_type<BFloat16> = dnnl_bf16;

/// For T = BFloat16, requires that oneDNN computes in it on this processor by instructions and not by emulation or
/// reference code; throws DeviceError otherwise. `what` begins the message: "bfloat16 convolutions need".
template <class T>
[[gnu::cold]] void require_instructions(std::string_view what) {
    if constexpr (dnnl_type<T> == dnnl_bf16) {
        require<DeviceError>(
            (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16, what,
            " AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(), ": train in float32");
    }
}

/// A description of a dense tensor with dimensions `dims` in oneDNN's order, laid out as `tag` says.
[[gnu::cold]] inline DnnlMemoryDesc dnnl_tensor(std::initializer_list<std::int64_t> dims, dnnl_format_tag_t tag,
                                                dnnl_data_type_t type = dnnl_f32) {
    dnnl_dims_t values{};
    int rank = 0;
    for (const std::int64_t value : dims) values[rank++] = value;
    DnnlMemoryDesc description;
    check_dnnl(dnnl_memory_desc_create_with_tag(description.out(), rank, values, type, tag),
               "dnnl_memory_desc_create_with_tag");
    return description;
}

/// The attributes of every primitive (the caller provides scratch memory), followed by a sum with what is in the
/// output, and then by an activation or a formula, if requested.
[[gnu::cold]] inline DnnlAttributes dnnl_attributes(Activation activation = Activation::none, bool sum = false,
                                                    const OutputFormula* formula = nullptr) {
    static constexpr OutputFormula relu{dnnl_eltwise_relu}, relu6{dnnl_eltwise_clip, 0.0F, 6.0F};
    if (activation != Activation::none) formula = activation == Activation::relu ? &relu : &relu6;
    DnnlAttributes attributes;
    check_dnnl(dnnl_primitive_attr_create(attributes.out()), "dnnl_primitive_attr_create");
    check_dnnl(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user),
               "dnnl_primitive_attr_set_scratchpad_mode");
    if (formula == nullptr && !sum) return attributes;
    DnnlPostOps post_ops;
    check_dnnl(dnnl_post_ops_create(post_ops.out()), "dnnl_post_ops_create");
    if (sum)
        check_dnnl(dnnl_post_ops_append_sum(post_ops.get(), 1.0F, 0, dnnl_data_type_undef), "dnnl_post_ops_append_sum");
    const auto append = [&](int algorithm, float alpha, float beta) {
        check_dnnl(dnnl_post_ops_append_eltwise(post_ops.get(), static_cast<dnnl_alg_kind_t>(algorithm), alpha, beta),
                   "dnnl_post_ops_append_eltwise");
    };
    if (formula != nullptr) append(formula->algorithm, formula->alpha, formula->beta);
    if (formula != nullptr && formula->scale != 1.0F) append(dnnl_eltwise_linear, formula->scale, 0.0F);
    check_dnnl(dnnl_primitive_attr_set_post_ops(attributes.get(), post_ops.get()), "dnnl_primitive_attr_set_post_ops");
    return attributes;
}

/// A primitive and its arguments. Cheap to move; empty until made.
class DnnlCall {
public:
    DnnlCall() = default;
    [[gnu::noinline]] DnnlCall(DnnlCall&& other) noexcept : state_(std::move(other.state_)) {}
    [[gnu::noinline]] DnnlCall& operator=(DnnlCall&& other) noexcept {
        state_ = std::move(other.state_);
        return *this;
    }
    [[gnu::noinline]] ~DnnlCall() = default;

    /// Takes a description that oneDNN made with `status`; `what` names the operation in errors. An implementation that
    /// oneDNN itself calls a reference is rejected: it is a thousand times slower than the others.
    [[gnu::cold]] DnnlCall(const HostContext& context, dnnl_status_t status, DnnlPrimitiveDesc description,
                           std::string_view what) {
        if (status != dnnl_success || !description)
            throw_joined<DeviceError>(
                {"oneDNN ", Host::library_version(), " has no ", what, " of this shape: ", dnnl_status2str(status)});
        const char* name = "";
        check_dnnl(dnnl_primitive_desc_query(description.get(), dnnl_query_impl_info_str, 0, &name),
                   "dnnl_primitive_desc_query");
        if (std::strncmp(name, "ref", 3) == 0)
            throw_joined<DeviceError>({"oneDNN ", Host::library_version(), " has only its reference code (", name,
                                       ") for ", what, " of this shape on this processor"});
        state_ = std::make_unique<State>();
        state_->description = std::move(description);
        state_->engine = context.engine();
        state_->stream = context.stream();
        check_dnnl(dnnl_primitive_create(state_->primitive.out(), state_->description.get()), "dnnl_primitive_create");
        if (scratch_bytes() != 0) add(DNNL_ARG_SCRATCHPAD, query(dnnl_query_scratchpad_md));
    }

    [[nodiscard]] explicit operator bool() const { return state_ != nullptr; }
    [[nodiscard]] dnnl_primitive_desc_t description() const { return state_->description.get(); }
    [[nodiscard]] const_dnnl_memory_desc_t query(dnnl_query_t what) const {
        return dnnl_primitive_desc_query_md(state_->description.get(), what, 0);
    }
    /// The bytes of an argument's tensor; 0 if there is none, or if the call is empty.
    [[nodiscard]] std::size_t bytes(dnnl_query_t what) const {
        const const_dnnl_memory_desc_t md = state_ == nullptr ? nullptr : query(what);
        return md == nullptr ? 0 : dnnl_memory_desc_get_size(md);
    }
    [[nodiscard]] std::size_t scratch_bytes() const { return bytes(dnnl_query_scratchpad_md); }

    /// Declares argument `id` with its layout, and others; pointers are passed to `run` in the order of declaration.
    /// An argument without a layout is left out.
    [[gnu::cold]] void add(int id, const_dnnl_memory_desc_t layout, auto... others) {
        if constexpr (sizeof...(others) > 0) return add(id, layout), add(others...);
        if (layout == nullptr) return;
        State& s = *state_;
        require<DeviceError>(s.count < max_arguments, "a oneDNN call has more than ", max_arguments, " arguments");
        check_dnnl(dnnl_memory_create(s.memories[s.count].out(), layout, s.engine, DNNL_MEMORY_NONE),
                   "dnnl_memory_create");
        s.arguments[s.count] = {id, s.memories[s.count].get()};
        ++s.count;
    }

    /// Runs on these pointers: first the scratch memory if the primitive has any, then those declared, in order. More
    /// than were declared are ignored: those of a bias that the shape does not have.
    void run(std::byte* scratch, std::initializer_list<const void*> pointers) {
        State& s = *state_;
        int i = 0;
        if (s.count > 0 && s.arguments[0].arg == DNNL_ARG_SCRATCHPAD) set(i++, scratch);
        for (const void* pointer : pointers)
            if (i < s.count) set(i++, pointer);
        check_dnnl(dnnl_primitive_execute(s.primitive.get(), s.stream, s.count, s.arguments), "dnnl_primitive_execute");
    }

private:
    static constexpr int max_arguments = 6;
    struct State {
        DnnlPrimitiveDesc description;
        DnnlPrimitive primitive;
        DnnlMemory memories[max_arguments];
        dnnl_exec_arg_t arguments[max_arguments]{};
        int count = 0;
        dnnl_engine_t engine = nullptr;
        dnnl_stream_t stream = nullptr;
    };

    void set(int i, const void* pointer) {
        // oneDNN's interface has the same pointer type for its inputs and its outputs.
        check_dnnl(dnnl_memory_set_data_handle(state_->memories[i].get(), const_cast<void*>(pointer)),
                   "dnnl_memory_set_data_handle");
    }

    std::unique_ptr<State> state_;
};

/// A change of layout, `to = from`, or `to += from`.
[[gnu::cold]] inline DnnlCall dnnl_reorder(const HostContext& context, const_dnnl_memory_desc_t from,
                                           const_dnnl_memory_desc_t to, bool sum = false) {
    const DnnlAttributes attributes = dnnl_attributes(Activation::none, sum);
    DnnlPrimitiveDesc description;
    const dnnl_status_t status = dnnl_reorder_primitive_desc_create(description.out(), from, context.engine(), to,
                                                                    context.engine(), attributes.get());
    DnnlCall call(context, status, std::move(description), "reorder");
    call.add(DNNL_ARG_FROM, from, DNNL_ARG_TO, to);
    return call;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
