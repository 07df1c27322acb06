// SPDX-License-Identifier: Apache-2.0
#include "cudnn_objects.hpp"

#include <cctype>

#include "../../standard.hpp"
#include "control.hpp"
#include "stream.hpp"

namespace cupola::emulator {

namespace {

/// BAD_PARAM with a reason in the style of cuDNN 9.19.
void require_that(bool condition, const char* reason, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
    if (!condition) throw CudnnFailure{status, reason};
}

[[nodiscard]] std::optional<ElementKind> kind_of(cudnnDataType_t type) {
    if (type == CUDNN_DATA_FLOAT) return ElementKind::float32;
    if (type == CUDNN_DATA_HALF) return ElementKind::float16;
    if (type == CUDNN_DATA_BFLOAT16) return ElementKind::bfloat16;
    return std::nullopt;
}
[[nodiscard]] const char* name_of(ElementKind kind) {
    return kind == ElementKind::float32   ? "CUDNN_DATA_FLOAT"
           : kind == ElementKind::float16 ? "CUDNN_DATA_HALF"
                                          : "CUDNN_DATA_BFLOAT16";
}

void finalize_tensor(CudnnObject& object) {
    const auto extents = object.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
               strides = object.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    require_that(!extents.empty(), "the tensor has no dimensions");
    require_that(extents.size() == strides.size(), "the tensor has another number of strides than of dimensions");
    require_that(object.has(CUDNN_ATTR_TENSOR_DATA_TYPE), "the tensor has no data type");
    require_that(object.has(CUDNN_ATTR_TENSOR_UNIQUE_ID), "the tensor has no unique id");
    const auto kind = kind_of(object.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
    require_that(kind.has_value(), "the stand-in has no tensors of this data type",
                 CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    const auto alignment = object.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    require_that(alignment > 0 && alignment % bytes_of(*kind) == 0,
                 "the tensor's alignment is not a multiple of an element");
    for (const std::int64_t extent : extents) require_that(extent >= 0, "the tensor has a negative dimension");
    for (const std::int64_t stride : strides) require_that(stride >= 0, "the tensor has a negative stride");
    require_that(extents.size() == 4, "the stand-in has no tensors of other than four axes",
                 CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    CudnnTensor tensor{.id = object.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                       .kind = *kind,
                       .alignment = alignment,
                       .is_virtual = object.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)};
    std::ranges::copy(extents, tensor.extents.begin());
    std::ranges::copy(strides, tensor.strides.begin());
    object.made = tensor;
}

void finalize_convolution(CudnnObject& object) {
    const auto axes = object.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    require_that(object.has(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) && object.has(CUDNN_ATTR_CONVOLUTION_CONV_MODE),
                 "the convolution has no compute type, or no mode");
    require_that(axes == 2, "the convolution is not of two axes");
    CudnnConvolutionSettings settings;
    const auto take = [&](cudnnBackendAttributeName_t name, std::int64_t least, std::array<std::int64_t, 2>& to) {
        const auto values = object.all<std::int64_t>(name);
        require_that(values.size() == 2, "the convolution lacks strides, paddings or dilations of its two axes");
        require_that(values[0] >= least && values[1] >= least,
                     "the convolution has a stride, padding or dilation that is too small");
        std::ranges::copy(values, to.begin());
    };
    take(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1, settings.strides);
    take(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0, settings.pads_before);
    take(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0, settings.pads_after);
    take(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1, settings.dilations);
    require_that(object.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT,
                 "the stand-in adds in float", CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    settings.flipped = object.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
    object.made = settings;
}

void finalize_convolution_operation(CudnnObject& object) {
    struct Names {
        CudnnDirection direction;
        cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
    };
    const Names names = object.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                            ? Names{CudnnDirection::forward,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}
                        : object.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                            ? Names{CudnnDirection::backward_data,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}
                            : Names{CudnnDirection::backward_filter,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    const auto* const settings = object.made_of<CudnnConvolutionSettings>(names.convolution);
    const auto* const x = object.made_of<CudnnTensor>(names.x);
    const auto* const w = object.made_of<CudnnTensor>(names.w);
    const auto* const y = object.made_of<CudnnTensor>(names.y);
    require_that(settings != nullptr && x != nullptr && w != nullptr && y != nullptr,
                 "the convolution or one of its tensors is not there, or not finalised");
    require_that(x->extents[0] == y->extents[0], "the convolution's input and output have other numbers of samples");
    require_that(y->extents[1] == w->extents[0], "the convolution's weights have another number of outputs");
    require_that(w->extents[1] > 0 && x->extents[1] % w->extents[1] == 0,
                 "the convolution's weights have another number of inputs");
    require_that(w->extents[0] % (x->extents[1] / w->extents[1]) == 0,
                 "the convolution's outputs are not a multiple of its groups");
    for (std::size_t axis = 0; axis < 2; ++axis) {
        const std::int64_t reach = settings->dilations[axis] * (w->extents[axis + 2] - 1) + 1;
        const std::int64_t room =
            x->extents[axis + 2] + settings->pads_before[axis] + settings->pads_after[axis] - reach;
        require_that(room >= 0 && room / settings->strides[axis] + 1 == y->extents[axis + 2],
                     "the convolution's window, strides and paddings do not lead to its output");
    }
    object.made = CudnnOperation(CudnnConvolution{.direction = names.direction,
                                                  .x = *x,
                                                  .w = *w,
                                                  .y = *y,
                                                  .strides = settings->strides,
                                                  .pads_before = settings->pads_before,
                                                  .pads_after = settings->pads_after,
                                                  .dilations = settings->dilations,
                                                  .flipped = settings->flipped,
                                                  .alpha = object.one<float>(names.alpha, 1.0F),
                                                  .beta = object.one<float>(names.beta, 0.0F)});
}

void finalize_pointwise(CudnnObject& object) {
    require_that(object.has(CUDNN_ATTR_POINTWISE_MODE), "the element-wise operation has no mode");
    require_that(object.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_DOUBLE) == CUDNN_DATA_FLOAT,
                 "the stand-in computes element by element in float", CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    const auto mode = object.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    require_that(mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL || mode == CUDNN_POINTWISE_RELU_FWD,
                 "the stand-in does not have this element-wise operation", CUDNN_STATUS_NOT_SUPPORTED);
    object.made = mode;
}

void finalize_pointwise_operation(CudnnObject& object) {
    const auto* const mode = object.made_of<cudnnPointwiseMode_t>(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto* const x = object.made_of<CudnnTensor>(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const auto* const b = object.made_of<CudnnTensor>(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const auto* const y = object.made_of<CudnnTensor>(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    require_that(mode != nullptr && x != nullptr && y != nullptr,
                 "the element-wise operation or one of its tensors is not there, or not finalised");
    const bool binary = *mode != CUDNN_POINTWISE_RELU_FWD;
    require_that(binary == (b != nullptr), "the element-wise operation has a second operand too many, or too few");
    require_that(x->extents == y->extents, "the element-wise operation's tensors differ in shape");
    for (std::size_t axis = 0; binary && axis < 4; ++axis)
        require_that(b->extents[axis] == 1 || b->extents[axis] == y->extents[axis],
                     "the element-wise operation's second operand cannot be repeated to the shape of the first");
    CudnnPointwise operation{.mode = *mode, .binary = binary, .x = *x, .y = *y};
    if (binary) operation.b = *b;
    object.made = CudnnOperation(operation);
}

/// A convolution; a forward one may be followed by a bias and then a ReLU. All tensors in memory have one type.
[[nodiscard]] std::optional<CudnnProgram> program_of(const std::vector<CudnnOperation>& operations) {
    CudnnProgram program;
    const auto* const convolution = std::get_if<CudnnConvolution>(&operations.front());
    if (convolution == nullptr) return std::nullopt;
    program.convolution = *convolution;
    const ElementKind kind = convolution->w.kind;
    constexpr std::array<cudnnPointwiseMode_t, 2> pattern{CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_RELU_FWD};
    if (operations.size() > 1 + pattern.size()) return std::nullopt;
    const CudnnTensor* last = &program.convolution.result();
    for (std::size_t i = 1; i < operations.size(); ++i) {
        const auto* const operation = std::get_if<CudnnPointwise>(&operations[i]);
        if (operation == nullptr || operation->mode != pattern[i - 1]) return std::nullopt;
        if (convolution->direction != CudnnDirection::forward || convolution->beta != 0) return std::nullopt;
        if (!last->is_virtual || operation->x.id != last->id || operation->x.kind != last->kind) return std::nullopt;
        if (operation->binary && operation->b.extents != Extents{1, convolution->y.extents[1], 1, 1})
            return std::nullopt;
        program.after.push_back(*operation);
        last = &program.after.back().y;
    }
    const std::vector<const CudnnTensor*> tensors = program.memory_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i]->is_virtual || tensors[i]->kind != kind) return std::nullopt;
        for (std::size_t j = 0; j < i; ++j) {
            if (tensors[i]->id == tensors[j]->id) return std::nullopt;
        }
    }
    return program;
}

void finalize_graph(CudnnObject& object) {
    const auto held = object.objects(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    require_that(!held.empty(), "the graph has no operations");
    CudnnGraph graph;
    for (const CudnnObjectPointer& operation : held) {
        const auto* const made = std::get_if<CudnnOperation>(&operation->made);
        require_that(operation->finalized && made != nullptr, "an operation of the graph is not finalised");
        graph.operations.push_back(*made);
    }
    graph.program = program_of(graph.operations);
    object.made = std::move(graph);
}

/// The device of the attribute, or that of the calling thread.
[[nodiscard]] CudnnDevice device_of(const CudnnObject& object, cudnnBackendAttributeName_t name) {
    if (const auto* const described = object.made_of<CudnnDevice>(name)) return *described;
    require_that(!object.has(name), "the description of the device is not finalised");
    return describe_cudnn_device(current_device());
}

void finish_engine(CudnnObject& object, CudnnEngine engine) {
    object.type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    object.keep<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {&engine.kind.index, 1});
    object.keep<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, engine.kind.numerical_notes);
    object.keep<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, engine.kind.behavior_notes);
    object.made = std::move(engine);
    object.finalized = true;
}

/// As the test has set it.
[[nodiscard]] CudnnEngineKind kind_of_engine(std::int64_t index, ElementKind element) {
    CudnnEngineKind kind = cudnn_engine_kind(index, element);
    kind.more_workspace += engine_behavior(index, kind.seconds).workspace;
    return kind;
}

void finalize_engine(CudnnObject& object) {
    const auto* const graph = object.made_of<CudnnGraph>(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    require_that(graph != nullptr, "the engine has no finalised graph", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const CudnnDevice device = device_of(object, CUDNN_ATTR_ENGINE_DEVICEPROP);
    const auto index = object.one<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    require_that(graph->program.has_value() &&
                     has_cudnn_engine(index, graph->program->convolution.w.kind, device.compute_capability),
                 "there is no such engine for the graph", CUDNN_STATUS_NOT_SUPPORTED);
    finish_engine(object, {*graph, kind_of_engine(index, graph->program->convolution.w.kind), device, CudnnKnobs()});
}

void finalize_knob(CudnnObject& object) {
    require_that(object.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) && object.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE),
                 "the choice of a knob has no knob, or no value");
}

void finalize_configuration(CudnnObject& object) {
    const auto* const engine = object.made_of<CudnnEngine>(CUDNN_ATTR_ENGINECFG_ENGINE);
    require_that(engine != nullptr, "the configuration has no finalised engine");
    CudnnEngine configured = *engine;
    for (const CudnnObjectPointer& knob : object.objects(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
        require_that(knob->finalized, "the choice of a knob is not finalised");
        const auto type = knob->one<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
        for (const auto& [other, value] : configured.knobs)
            require_that(other != type, "a knob is chosen twice", CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
        configured.knobs.emplace_back(type, knob->one<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    }
    require_that(takes_knobs(configured.kind.index, configured.knobs), "the engine does not have this knob or value",
                 CUDNN_STATUS_NOT_SUPPORTED);
    object.made = std::move(configured);
}

[[nodiscard]] CudnnObjectPointer configuration_of(const CudnnGraph& graph, const CudnnDevice& device,
                                                  const CudnnConfiguration& wanted) {
    auto engine = std::make_shared<CudnnObject>();
    finish_engine(*engine, {graph, kind_of_engine(wanted.engine, graph.program->convolution.w.kind), device, {}});
    std::vector<CudnnObjectPointer> knobs;
    for (const auto& [type, value] : wanted.knobs) {
        auto knob = std::make_shared<CudnnObject>();
        knob->type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        knob->keep<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {&type, 1});
        knob->keep<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {&value, 1});
        knob->finalized = true;
        knobs.push_back(std::move(knob));
    }
    auto result = std::make_shared<CudnnObject>();
    result->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    result->keep(CUDNN_ATTR_ENGINECFG_ENGINE, {std::move(engine)});
    result->keep(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::move(knobs));
    finalize_configuration(*result);
    result->finalized = true;
    return result;
}

void finalize_heuristics(CudnnObject& object) {
    const auto* const graph = object.made_of<CudnnGraph>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    require_that(graph != nullptr, "the heuristics have no finalised graph");
    const CudnnDevice device = device_of(object, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    const auto mode = object.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
    count_heuristics(mode);
    std::vector<CudnnObjectPointer> results;
    if (graph->program) {
        for (const CudnnConfiguration& configuration :
             ranked_cudnn_engines(*graph->program, mode, device.compute_capability))
            results.push_back(configuration_of(*graph, device, configuration));
    }
    object.keep(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(results));
}

/// The JSON text of a plan, with the order and the names of cuDNN 9.19.
class PlanText {
public:
    explicit PlanText(const CudnnEngine& plan) {
        text_ = R"({"cudnnVersion":)" + std::to_string(CUDNN_VERSION) + R"(,"operationGraph":{"tensors":[)";
        for (const CudnnOperation& operation : plan.graph.operations)
            std::visit([this](const auto& of_kind) { add_tensors(of_kind); }, operation);
        text_ += R"(],"nodes":[)";
        for (const CudnnOperation& operation : plan.graph.operations) {
            if (&operation != &plan.graph.operations.front()) text_ += ',';
            std::visit([this](const auto& of_kind) { add_operation(of_kind); }, operation);
        }
        text_ += R"(]},"GPUProfile":)" + plan.device.description + R"(,"engine":{"engineId":)" +
                 std::to_string(plan.kind.index) + R"(,"knobChoices":{)";
        for (const auto& [knob, value] : plan.knobs) {
            if (text_.back() != '{') text_ += ',';
            text_ += '"' + std::to_string(knob) + "\":" + std::to_string(value);
        }
        text_ += "}}}";
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    template <class Range>
    void add_list(const char* name, const Range& values) {
        text_ += std::string("\"") + name + "\":[";
        for (const std::int64_t value : values) {
            if (text_.back() != '[') text_ += ',';
            text_ += std::to_string(value);
        }
        text_ += ']';
    }
    void add_tensor(const CudnnTensor& tensor) {
        if (text_.back() != '[') text_ += ',';
        text_ += R"({"name":")" + std::to_string(tensor.id) + R"(","dataType":")" + name_of(tensor.kind) + "\",";
        add_list("dim", tensor.extents);
        text_ += ',';
        add_list("stride", tensor.strides);
        text_ += std::string(R"(,"isVirtual":)") + (tensor.is_virtual ? "true" : "false") + R"(,"ptrAlignment":)" +
                 std::to_string(tensor.alignment) + "}";
    }
    void add_tensors(const CudnnConvolution& c) {
        for (const CudnnTensor* tensor : {&c.x, &c.w, &c.y}) add_tensor(*tensor);
    }
    void add_tensors(const CudnnPointwise& p) {
        if (p.binary) add_tensor(p.b);
        add_tensor(p.y);
    }
    void add_operation(const CudnnConvolution& c) {
        constexpr std::array<const char*, 3> names{"FORWARD", "BACKWARD_DATA", "BACKWARD_FILTER"};
        text_ += std::string(R"({"operation":"CUDNN_BACKEND_OPERATION_CONVOLUTION_)") +
                 names[static_cast<std::size_t>(c.direction)] + R"(_DESCRIPTOR","mode":")" +
                 (c.flipped ? "CUDNN_CONVOLUTION" : "CUDNN_CROSS_CORRELATION") + R"(","mathPrec":"CUDNN_DATA_FLOAT",)" +
                 R"("alpha":)" + std::to_string(c.alpha) + R"(,"beta":)" + std::to_string(c.beta) + ',';
        if (c.pads_before == c.pads_after) {
            add_list("pad", c.pads_before);
        } else {
            add_list("pad_lower", c.pads_before);
            text_ += ',';
            add_list("pad_upper", c.pads_after);
        }
        text_ += ',';
        add_list("stride", c.strides);
        text_ += ',';
        add_list("dilation", c.dilations);
        text_ += '}';
    }
    void add_operation(const CudnnPointwise& p) {
        text_ += R"({"operation":"CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR","mode":)" + std::to_string(p.mode) +
                 R"(,"X":")" + std::to_string(p.x.id) + R"(","Y":")" + std::to_string(p.y.id) + "\"}";
    }

    std::string text_;
};

void finalize_plan(CudnnObject& object) {
    const auto* const configured = object.made_of<CudnnEngine>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    require_that(configured != nullptr, "the plan has no finalised configuration of an engine",
                 CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    require_that(!configured->kind.refuses, "the engine does not run here", CUDNN_STATUS_NOT_SUPPORTED);
    count_plan();
    CudnnEngine plan = *configured;
    plan.device = device_of(object, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    plan.graph.program->engine = plan.kind;
    const std::int64_t workspace = plan.graph.program->workspace_bytes();
    object.keep<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, {&workspace, 1});
    const std::string text = PlanText(plan).text();
    object.keep<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text);
    object.made = std::move(plan);
}

/// The required members of the description of a device, in the order in which cuDNN 9.19 checks them.
constexpr std::array<const char*, 13> device_members{
    "maxGridSize",    "maxBlockSize",   "regsPerBlock",    "multiProcessorCount", "warpSize",
    "totalGlobalMem", "smClockRateKHz", "memClockRateKHz", "l2CacheSize",         "maxThreadsPerBlock",
    "deviceVer",      "driverVer",      "deviceName"};

/// The JSON text without white space.
[[nodiscard]] std::string without_spaces(const std::vector<char>& text) {
    std::string result;
    bool quoted = false;
    for (const char character : text) {
        if (character == '"') quoted = !quoted;
        if (character == '\0' || (!quoted && std::isspace(static_cast<unsigned char>(character)) != 0)) continue;
        result += character;
    }
    return result;
}

void finalize_device(CudnnObject& object) {
    if (object.has(CUDNN_ATTR_DEVICEPROP_HANDLE)) {
        const auto handle = object.one<cudnnHandle_t>(CUDNN_ATTR_DEVICEPROP_HANDLE);
        require_that(handle != nullptr, "the device's handle is null");
        CudnnDevice device = describe_cudnn_device(handle->device);
        object.keep<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, device.description);
        object.made = std::move(device);
        return;
    }
    const auto characters = object.all<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    if (characters.empty()) {
        object.made = describe_cudnn_device(current_device());
        return;
    }
    const std::string text = without_spaces(characters);
    require_that(text.starts_with('{') && text.ends_with('}'), "!json_object.IsObject()");
    const auto place_of = [&](std::string_view member) {
        const std::string quoted = '"' + std::string(member) + '"';
        const std::size_t at = text.find(quoted + ':');
        return at == std::string::npos ? at : at + quoted.size() + 1;
    };
    for (const char* member : device_members)
        require_that(place_of(member) != std::string::npos,
                     ("!json_object.HasMember(\"" + std::string(member) + "\")").c_str());
    const int capability = std::atoi(text.c_str() + place_of("deviceVer"));
    object.made = CudnnDevice{text, capability};
}

}  // namespace

CudnnDevice describe_cudnn_device(int device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        cudaGetLastError();
        throw CudnnFailure{CUDNN_STATUS_NOT_INITIALIZED, "cudaGetDeviceProperties failed"};
    }
    const int capability = properties.major * 100 + properties.minor * 10;
    const auto number = [](auto value) { return std::to_string(value); };
    return {R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
            R"("multiProcessorCount":)" +
                number(properties.multiProcessorCount) + R"(,"warpSize":)" + number(properties.warpSize) +
                R"(,"maxThreadsPerBlock":)" + number(properties.maxThreadsPerBlock) + R"(,"totalGlobalMem":)" +
                number(properties.totalGlobalMem) + R"(,"l2CacheSize":)" + number(properties.l2CacheSize) +
                R"(,"smClockRateKHz":1,"memClockRateKHz":1,"cudaDeviceId":)" + number(device) + R"(,"deviceVer":)" +
                number(capability) + R"(,"driverVer":13000,"deviceName":")" + properties.name + R"("})",
            capability};
}

std::size_t cudnn_size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
        case CUDNN_TYPE_INT64:
        case CUDNN_TYPE_DOUBLE: return sizeof(std::int64_t);
        case CUDNN_TYPE_BOOLEAN:
        case CUDNN_TYPE_CHAR: return 1;
        default: return sizeof(int);
    }
}

std::span<const CudnnAttribute> cudnn_attributes() {
    constexpr auto tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR, convolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
    constexpr auto forward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   data = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   filter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    constexpr auto pointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                   pointwise_operation = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
    constexpr auto graph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, heuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                   engine = CUDNN_BACKEND_ENGINE_DESCRIPTOR, configuration = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                   knob = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, plan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                   pack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, device = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
    constexpr auto object = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    constexpr std::int64_t any = -1, max_axes = 8;
    static const std::vector<CudnnAttribute> attributes{
        {tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
        {tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
        {tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, max_axes},
        {tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, max_axes},
        {tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
        {tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN},
        {convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
        {convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
        {convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, max_axes},
        {convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, max_axes},
        {convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, max_axes},
        {convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, max_axes},
        {convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, object, 1, true, convolution},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, object, 1, true, tensor},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, object, 1, true, tensor},
        {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, object, 1, true, tensor},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, object, 1, true, convolution},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, object, 1, true, tensor},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, object, 1, true, tensor},
        {data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, object, 1, true, tensor},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, object, 1, true, convolution},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, object, 1, true, tensor},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, object, 1, true, tensor},
        {filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, object, 1, true, tensor},
        {pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
        {pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
        {pointwise_operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, object, 1, true, pointwise},
        {pointwise_operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, object, 1, true, tensor},
        {pointwise_operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, object, 1, true, tensor},
        {pointwise_operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, object, 1, true, tensor},
        {graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
        {graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, object, any},
        {heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
        {heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, object, 1, true, graph},
        {heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, object, 1, true, device},
        {heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, object, any, false, configuration},
        {engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, object, 1, true, graph},
        {engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64},
        {engine, CUDNN_ATTR_ENGINE_DEVICEPROP, object, 1, true, device},
        {engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, any, false},
        {engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, any, false},
        {configuration, CUDNN_ATTR_ENGINECFG_ENGINE, object, 1, true, engine},
        {configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, object, any, true, knob},
        {knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE},
        {knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64},
        {plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
        {plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, object, 1, true, configuration},
        {plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, object, 1, true, device},
        {plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, false},
        {plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, any, false},
        {pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, any},
        {pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, any},
        {pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR},
        {device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE},
        {device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, any}};
    return attributes;
}

void finalize_cudnn_object(CudnnObject& object) {
    switch (object.type) {
        case CUDNN_BACKEND_TENSOR_DESCRIPTOR: finalize_tensor(object); break;
        case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: finalize_convolution(object); break;
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
            finalize_convolution_operation(object);
            break;
        case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: finalize_pointwise(object); break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: finalize_pointwise_operation(object); break;
        case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: finalize_graph(object); break;
        case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: finalize_heuristics(object); break;
        case CUDNN_BACKEND_ENGINE_DESCRIPTOR: finalize_engine(object); break;
        case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR: finalize_knob(object); break;
        case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: finalize_configuration(object); break;
        case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: finalize_plan(object); break;
        case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: finalize_device(object); break;
        case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: break;  // checked when the plan is executed
    }
    object.finalized = true;
}

}  // namespace cupola::emulator
