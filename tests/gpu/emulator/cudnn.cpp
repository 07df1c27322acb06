// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's C functions for Cupola's graphs, on the CPU: descriptors, a choice of engines, and plans that are queued on the
// stream of the handle and run later. The statuses are those of cuDNN 9.19 where it can be called without a GPU
// (tests/gpu/cudnn_calls_test.cpp); where cuDNN would read freed memory or end the program, the stand-in returns an error.
#include <new>

#include <cudnn.h>

#include "../../standard.hpp"
#include "control.hpp"
#include "cudnn_objects.hpp"
#include "memory.hpp"
#include "stream.hpp"

using namespace cupola::emulator;

namespace {

/// The object behind a cudnnBackendDescriptor_t.
struct Descriptor {
    std::shared_ptr<CudnnObject> object;
};

/// Not of a function: see shared_memory.hpp.
thread_local std::string last_error;

/// NVIDIA's page requires none of a workspace, but nobody runs the engines with less than cudaMalloc's.
constexpr std::uintptr_t workspace_alignment = 256;

/// Runs `call`, which may throw CudnnFailure.
template <class Call>
[[nodiscard]] cudnnStatus_t answered(Call&& call) {
    try {
        call();
        return CUDNN_STATUS_SUCCESS;
    } catch (const CudnnFailure& failure) {
        last_error = failure.reason;
        return failure.status;
    } catch (const std::bad_alloc&) {
        last_error = "the host has no memory left";
        return CUDNN_STATUS_INTERNAL_ERROR;
    }
}

void require_that(bool condition, const char* reason, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
    if (!condition) throw CudnnFailure{status, reason};
}

[[nodiscard]] CudnnObject& object_of(cudnnBackendDescriptor_t descriptor) {
    require_that(descriptor != nullptr, "nullptr == descriptor", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    return *static_cast<Descriptor*>(descriptor)->object;
}

[[nodiscard]] const CudnnAttribute& attribute_of(const CudnnObject& object, cudnnBackendAttributeName_t name,
                                                 cudnnBackendAttributeType_t type) {
    for (const CudnnAttribute& attribute : cudnn_attributes()) {
        if (attribute.of != object.type || attribute.name != name) continue;
        require_that(attribute.type == type, "the attribute is of another type", CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
        return attribute;
    }
    throw CudnnFailure{CUDNN_STATUS_BAD_PARAM, "the descriptor has no such attribute"};
}

void set(CudnnObject& object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
         const void* values) {
    require_that(!object.finalized, "the descriptor is finalised");
    const CudnnAttribute& attribute = attribute_of(object, name, type);
    require_that(attribute.settable, "the attribute cannot be set");
    require_that(count >= (attribute.most < 0 ? 0 : 1) && (attribute.most < 0 || count <= attribute.most),
                 "the attribute cannot have so many elements");
    require_that(values != nullptr || count == 0, "the attribute's elements are null");
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const auto* const bytes = static_cast<const std::byte*>(values);
        const std::size_t size = static_cast<std::size_t>(count) * cudnn_size_of(type);
        object.keep<std::byte>(name, std::vector<std::byte>(bytes, bytes + size));
        object.values[name].count = count;
        return;
    }
    std::vector<CudnnObjectPointer> held;
    for (std::int64_t i = 0; i < count; ++i) {
        const CudnnObject& other = object_of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
        require_that(!attribute.holds || other.type == *attribute.holds, "the attribute wants another descriptor",
                     CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
        held.push_back(std::make_shared<const CudnnObject>(other));
    }
    object.keep(name, std::move(held));
}

void get(const CudnnObject& object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::int64_t requested, std::int64_t* count, void* values) {
    require_that(object.finalized, "the descriptor is not finalised", CUDNN_STATUS_NOT_INITIALIZED);
    const CudnnAttribute& attribute = attribute_of(object, name, type);
    const auto found = object.values.find(name);
    require_that(found != object.values.end(), "the attribute was not set");
    const CudnnValue& value = found->second;
    require_that(requested >= 0, "fewer than no elements are asked for");
    if (values == nullptr) {
        require_that(count != nullptr, "there is no place for the number of elements");
        // The announced count may be too large: cuDNN 9.19 announced 37 configurations of a convolution and returned 33.
        const std::int64_t too_many = name == CUDNN_ATTR_ENGINEHEUR_RESULTS && value.count > 0 ? 2 : 0;
        *count = value.count + too_many;
        return;
    }
    const std::int64_t given = std::min(requested, value.count);
    if (count != nullptr) *count = given;
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        if (given > 0) std::memcpy(values, value.bytes.data(), static_cast<std::size_t>(given) * cudnn_size_of(type));
        return;
    }
    for (std::int64_t i = 0; i < given; ++i) {
        cudnnBackendDescriptor_t& place = static_cast<cudnnBackendDescriptor_t*>(values)[i];
        require_that(!attribute.holds || object_of(place).type == *attribute.holds,
                     "the place for a descriptor is a descriptor of another type",
                     CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
        static_cast<Descriptor*>(place)->object =
            std::make_shared<CudnnObject>(*value.objects[static_cast<std::size_t>(i)]);
    }
}

void execute(cudnnHandle_t handle, const CudnnObject& plan_object, const CudnnObject& pack) {
    require_that(handle != nullptr, "the handle is null");
    require_that(plan_object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
                     pack.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                 "this is no plan, or no pack of pointers", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    require_that(plan_object.finalized && pack.finalized, "the plan or the pack of pointers is not finalised",
                 CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    const auto& plan = std::get<CudnnEngine>(plan_object.made);
    require_that(plan.device.compute_capability == describe_cudnn_device(handle->device).compute_capability,
                 "the plan is for another GPU", CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
    require_that(current_device() == handle->device, "the calling thread's device is not the handle's",
                 CUDNN_STATUS_EXECUTION_FAILED);
    const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    require_that(ids.size() == pointers.size(), "the pack has another number of pointers than of tensors");
    for (std::size_t i = 0; i < ids.size(); ++i)
        require_that(std::ranges::count(ids, ids[i]) == 1, "the pack names a tensor twice",
                     CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    const CudnnProgram& program = *plan.graph.program;
    std::vector<void*> in_order;
    for (const CudnnTensor* tensor : program.memory_tensors()) {
        const auto found = std::ranges::find(ids, tensor->id);
        require_that(found != ids.end(), "the pack lacks a tensor of the graph");
        void* const pointer = pointers[static_cast<std::size_t>(found - ids.begin())];
        require_that(pointer != nullptr, "a tensor's pointer is null", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        require_that(reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(tensor->alignment) == 0,
                     "a tensor's pointer is not aligned as its descriptor says",
                     CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
        require_that(is_reached_by(handle->device, pointer), "a tensor's pointer is not to memory of the GPU",
                     CUDNN_STATUS_EXECUTION_FAILED);
        in_order.push_back(pointer);
    }
    auto* const workspace = static_cast<std::byte*>(pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    if (program.workspace_bytes() > 0) {
        require_that(workspace != nullptr, "the plan's workspace is null", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        require_that(reinterpret_cast<std::uintptr_t>(workspace) % workspace_alignment == 0,
                     "the plan's workspace is not at a multiple of 256 bytes, as memory from cudaMalloc is",
                     CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
        require_that(is_reached_by(handle->device, workspace), "the plan's workspace is not memory of the GPU",
                     CUDNN_STATUS_EXECUTION_FAILED);
    }
    const EngineBehavior behavior = engine_behavior(program.engine.index, program.engine.seconds);
    require_that(!behavior.fails, "the engine cannot run", CUDNN_STATUS_EXECUTION_FAILED);
    count_library_call();
    double seconds = behavior.seconds * time_with(plan.knobs);
    if (program.engine.index == tensor_core_engine && has_few_channels(program.convolution))
        seconds *= few_channels_time;
    seconds =
        queued_seconds(handle->stream, seconds, behavior.host_seconds + load_seconds("cuDNN", program.engine.index));
    LibraryCost cost = program.cost();
    cost.workspace = workspace;
    cost.workspace_bytes = static_cast<std::size_t>(program.workspace_bytes());
    enqueue(
        handle->stream,
        [program, in_order, workspace, seconds] {
            program.run(in_order, program.workspace_bytes() > 0 ? workspace : nullptr);
            take_seconds(seconds);
            return true;
        },
        "cudnnBackendExecute, " + program.name(), cost);
    require_that(cudaPeekAtLastError() == cudaSuccess, "the work could not be queued", CUDNN_STATUS_EXECUTION_FAILED);
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
#define CUPOLA_STATUS(name) \
    case name: return #name
    switch (status) {
        CUPOLA_STATUS(CUDNN_STATUS_SUCCESS);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_INITIALIZED);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
        CUPOLA_STATUS(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_SUPPORTED);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
        CUPOLA_STATUS(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
        CUPOLA_STATUS(CUDNN_STATUS_INTERNAL_ERROR);
        CUPOLA_STATUS(CUDNN_STATUS_EXECUTION_FAILED);
    }
#undef CUPOLA_STATUS
    return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
    if (message == nullptr || max_size == 0) return;
    const std::size_t length = std::min(last_error.size(), max_size - 1);
    std::memcpy(message, last_error.data(), length);
    message[length] = '\0';
    last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    return answered([&] {
        require_that(handle != nullptr, "nullptr == handle", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        int devices = 0;
        if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
            cudaGetLastError();
            throw CudnnFailure{CUDNN_STATUS_NOT_INITIALIZED, "cudaGetDeviceCount(&count) != cudaSuccess"};
        }
        let_idle(current_device());
        *handle = new cudnnContext{current_device(), nullptr};
    });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    if (handle != nullptr && handle->device != current_device()) misuse("cudnnDestroy was called for another device");
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    return answered([&] {
        require_that(handle != nullptr, "nullptr == handle");
        handle->stream = stream;
    });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    return answered([&] {
        require_that(descriptor != nullptr, "nullptr == descriptor", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        const bool known = std::ranges::any_of(cudnn_attributes(), [&](const auto& a) { return a.of == type; });
        require_that(known, "the stand-in has no such descriptor", CUDNN_STATUS_NOT_SUPPORTED);
        auto object = std::make_shared<CudnnObject>();
        object->type = type;
        *descriptor = new Descriptor{std::move(object)};
    });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    return answered([&] {
        static_cast<void>(object_of(descriptor));
        delete static_cast<Descriptor*>(descriptor);
    });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return answered([&] {
        CudnnObject& object = object_of(descriptor);
        require_that(!object.finalized, "the descriptor is finalised");
        finalize_cudnn_object(object);
    });
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    return answered([&] { set(object_of(descriptor), name, type, count, values); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* values) {
    return answered([&] { get(object_of(descriptor), name, type, requested, count, values); });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    return answered([&] {
        require_that(handle != nullptr, "the handle is null");
        execute(handle, object_of(plan), object_of(pack));
    });
}
}
