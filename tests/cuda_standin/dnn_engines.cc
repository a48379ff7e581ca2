// The graph interface of the stand-in for cuDNN: one operation, a convolution, by one of several
// made-up engines.

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "kernels/gpu/cuda/dnn_engines_api.h"
#include "tests/cuda_standin/dnn_queue.h"
#include "tests/cuda_standin/registry.h"

namespace millrace::standin {
namespace {

using namespace gpu::dnn;
using What = gpu::Convolution::What;

constexpr int kNotSupported = 3000;
constexpr int kNone = -1;

// Best first. All but the last ones test what callers must skip.
struct Engine {
  int numerical_note;
  int behavior_note;
  int plan_status;
  size_t memory;
};
constexpr size_t kTooMuch = size_t{1} << 40U;
constexpr Engine kEngines[] = {
    {kNoteNotDeterministic, kNone, kSuccess, 0},  //
    {kNone, kNoteRuntimeCompilation, kSuccess, 0},
    {kNone, kNone, kNotSupported, 0},
    {kNone, kNone, kSuccess, kTooMuch},
    {kNoteTensorCore, kNone, kSuccess, 512},  // may round to TF32
    {5, kNone, kSuccess, 4096},               // by Winograd's method
};

struct Value {
  Type type;
  int64_t count;
  std::vector<std::byte> bytes;
};
struct Object {
  Kind kind;
  bool is_finished = false;
  std::map<Name, Value> values;
  // of engines, their configurations and plans
  const Engine* engine = nullptr;
  Backend graph = nullptr;
};
Registry<Object, Backend>& objects() {
  static auto* const kObjects = new Registry<Object, Backend>;
  return *kObjects;
}

size_t size_of(Type type) {
  switch (type) {
    case Type::kHandle:
    case Type::kInt64:
    case Type::kPointer:
    case Type::kDescriptor:
      return 8;
    default:
      return 4;
  }
}

// An attribute of `count` values, or nothing.
template <typename T>
const T* get(const Object& object, Name name, Type type, int64_t count) {
  const auto found = object.values.find(name);
  if (found == object.values.end() || found->second.type != type || found->second.count != count)
    return nullptr;
  return reinterpret_cast<const T*>(found->second.bytes.data());
}

// A finished descriptor that is an attribute.
Object* get_object(const Object& object, Name name, Kind kind) {
  const auto* const handle = get<Backend>(object, name, Type::kDescriptor, 1);
  Object* const found = handle == nullptr ? nullptr : objects().find(*handle);
  return found != nullptr && found->kind == kind && found->is_finished ? found : nullptr;
}

struct Tensor {
  int type;
  const int64_t* dims;
  int64_t id;
  int64_t alignment;
};
std::optional<Tensor> tensor_of(const Object* object) {
  if (object == nullptr) return {};
  const auto* const type = get<int>(*object, Name::kTensorType, Type::kDataType, 1);
  const auto* const dims = get<int64_t>(*object, Name::kTensorDims, Type::kInt64, 4);
  const auto* const strides = get<int64_t>(*object, Name::kTensorStrides, Type::kInt64, 4);
  const auto* const id = get<int64_t>(*object, Name::kTensorId, Type::kInt64, 1);
  const auto* const alignment = get<int64_t>(*object, Name::kTensorAlignment, Type::kInt64, 1);
  if (type == nullptr || dims == nullptr || strides == nullptr || id == nullptr ||
      alignment == nullptr)
    return {};
  int64_t stride = 1;
  for (int i = 3; i >= 0; --i) {
    if (dims[i] < 1 || strides[i] != stride) return {};
    stride *= dims[i];
  }
  return Tensor{*type, dims, *id, *alignment};
}

struct Graph {
  Handle handle = nullptr;
  gpu::Convolution c;
  Tensor tensors[3] = {};  // input, filter, output
};

// The names of an operation's attributes follow each other.
struct Names {
  What what;
  Name alpha, input, filter, output;
};
std::optional<Names> names_of(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return Names{What::kOutput, Name::kForwardAlpha, Name::kForwardInput, Name::kForwardFilter,
                   Name::kForwardOutput};
    case Kind::kBackwardData:
      return Names{What::kInputGradient, Name::kBackwardDataAlpha, Name::kBackwardDataInput,
                   Name::kBackwardDataFilter, Name::kBackwardDataOutput};
    case Kind::kBackwardFilter:
      return Names{What::kFilterGradient, Name::kBackwardFilterAlpha, Name::kBackwardFilterInput,
                   Name::kBackwardFilterFilter, Name::kBackwardFilterOutput};
    default:
      return {};
  }
}

const char* read_window(const Object& window, gpu::Convolution& c) {
  const auto pair = [&](Name name) { return get<int64_t>(window, name, Type::kInt64, 2); };
  const auto* const type = get<int>(window, Name::kConvolutionType, Type::kDataType, 1);
  const auto* const mode = get<int>(window, Name::kConvolutionMode, Type::kConvolutionMode, 1);
  const auto* const dims = get<int64_t>(window, Name::kSpatialDims, Type::kInt64, 1);
  const int64_t* const before = pair(Name::kPaddingBefore);
  const int64_t* const after = pair(Name::kPaddingAfter);
  const int64_t* const strides = pair(Name::kStrides);
  const int64_t* const dilations = pair(Name::kDilations);
  if (type == nullptr || *type != kDataFloat || mode == nullptr || *mode != kCrossCorrelation ||
      dims == nullptr || *dims != 2 || before == nullptr || after == nullptr ||
      strides == nullptr || dilations == nullptr)
    return "an attribute of a convolution is missing or has another type";
  for (int i = 0; i < 2; ++i) {
    c.before[i] = before[i];
    c.stride[i] = strides[i];
    c.dilation[i] = dilations[i];
  }
  return problem_of(c, {after[0], after[1]});
}

// Returns what is wrong with the graph; empty: nothing.
const char* read_graph(const Object& object, Graph& graph) {
  const auto* const handle = get<Handle>(object, Name::kGraphHandle, Type::kHandle, 1);
  const auto* const held = get<Backend>(object, Name::kGraphOperations, Type::kDescriptor, 1);
  const Object* const operation = held == nullptr ? nullptr : objects().find(*held);
  if (handle == nullptr || operation == nullptr || !operation->is_finished)
    return "a graph without a handle or a finished operation";
  graph.handle = *handle;
  const std::optional<Names> names = names_of(operation->kind);
  if (!names.has_value()) return "an operation that is no convolution";
  const auto next = [&](int i) { return static_cast<Name>(static_cast<int>(names->alpha) + i); };
  const auto* const alpha = get<float>(*operation, next(0), Type::kFloat, 1);
  const auto* const beta = get<float>(*operation, next(1), Type::kFloat, 1);
  if (alpha == nullptr || *alpha != 1.0F || beta == nullptr || *beta != 0.0F)
    return "factors other than 1 and 0";
  const Object* const window = get_object(*operation, next(2), Kind::kConvolution);
  const Name slots[] = {names->input, names->filter, names->output};
  for (int i = 0; i < 3; ++i) {
    const std::optional<Tensor> tensor = tensor_of(get_object(*operation, slots[i], Kind::kTensor));
    if (!tensor.has_value()) return "an operand is no row-major tensor";
    graph.tensors[i] = *tensor;
  }
  if (window == nullptr) return "an operation without a finished convolution";
  gpu::Convolution& c = graph.c;
  const int64_t* const x = graph.tensors[0].dims;
  const int64_t* const w = graph.tensors[1].dims;
  const int64_t* const y = graph.tensors[2].dims;
  const int type = graph.tensors[0].type;
  if (graph.tensors[1].type != type || graph.tensors[2].type != type)
    return "operands of several types";
  if (type != kDataFloat && type != kDataHalf && type != kDataBfloat16) return "an unknown type";
  c.element = type == kDataHalf       ? gpu::Element::kFloat16
              : type == kDataBfloat16 ? gpu::Element::kBfloat16
                                      : gpu::Element::kFloat32;
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || y[1] % (x[1] / w[1]) != 0)
    return "batches or channels do not match";
  c.what = names->what;
  c.batch = x[0];
  c.in_channels = x[1];
  c.out_channels = y[1];
  c.groups = x[1] / w[1];
  for (int i = 0; i < 2; ++i) {
    c.in[i] = x[2 + i];
    c.kernel[i] = w[2 + i];
    c.out[i] = y[2 + i];
  }
  return read_window(*window, c);
}

// None is found for a dilation above 8, so that callers meet that case.
size_t engines_for(const Graph& graph) {
  return graph.c.dilation[0] > 8 ? 0 : std::size(kEngines);
}

int finish(Object& object) {
  Graph graph;
  switch (object.kind) {
    case Kind::kTensor:
      if (!tensor_of(&object).has_value()) return dnn_refused("no row-major tensor");
      break;
    case Kind::kGraph:
      if (const char* const problem = read_graph(object, graph); *problem != 0)
        return dnn_refused(problem);
      break;
    case Kind::kHeuristic: {
      const auto* const mode = get<int>(object, Name::kHeuristicMode, Type::kHeuristicMode, 1);
      if (get_object(object, Name::kHeuristicGraph, Kind::kGraph) == nullptr || mode == nullptr ||
          *mode != kHeuristicA)
        return dnn_refused("a heuristic without a finished graph or with an unknown mode");
      break;
    }
    case Kind::kPlan: {
      const Object* const config = get_object(object, Name::kPlanConfig, Kind::kEngineConfig);
      if (config == nullptr || get<Handle>(object, Name::kPlanHandle, Type::kHandle, 1) == nullptr)
        return dnn_refused("a plan without a handle or a configuration");
      if (config->engine->plan_status != kSuccess) return config->engine->plan_status;
      object.engine = config->engine;
      object.graph = config->graph;
      break;
    }
    default:
      break;
  }
  object.is_finished = true;
  return kSuccess;
}

// Fills configurations that the caller made.
int get_configs(const Object& heuristic, int64_t wanted, int64_t* count, void* values) {
  Graph graph;
  const auto* const held = get<Backend>(heuristic, Name::kHeuristicGraph, Type::kDescriptor, 1);
  const Object* const given = held == nullptr ? nullptr : objects().find(*held);
  if (given == nullptr || *read_graph(*given, graph) != 0)
    return dnn_refused("the graph of a heuristic is gone");
  const auto most = static_cast<int64_t>(engines_for(graph));
  *count = wanted == 0 ? most : std::min(wanted, most);
  for (int64_t i = 0; i < std::min(wanted, most); ++i) {
    Object* const config = objects().find(static_cast<Backend*>(values)[i]);
    if (config == nullptr || config->kind != Kind::kEngineConfig)
      return dnn_refused("results of a heuristic need descriptors of configurations");
    config->engine = &kEngines[i];
    config->graph = *held;
    config->is_finished = true;
  }
  return kSuccess;
}

int give_notes(int note, int64_t* count, void* values) {
  *count = note == kNone ? 0 : 1;
  if (note != kNone) std::memcpy(values, &note, sizeof note);
  return kSuccess;
}

}  // namespace
}  // namespace millrace::standin

using namespace millrace::standin;
using namespace millrace::gpu::dnn;

extern "C" {

int cudnnBackendCreateDescriptor(Kind kind, Backend* made) {
  if (made == nullptr) return dnn_refused("null");
  *made = objects().add({kind, false, {}, nullptr, nullptr});
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(Backend backend) {
  return objects().remove(backend) ? kSuccess : dnn_refused("an unknown descriptor is destroyed");
}

int cudnnBackendFinalize(Backend backend) {
  Object* const object = objects().find(backend);
  if (object == nullptr || object->is_finished) return dnn_refused("unknown or finished");
  return finish(*object);
}

int cudnnBackendSetAttribute(Backend backend, Name name, Type type, int64_t count,
                             const void* values) {
  Object* const object = objects().find(backend);
  if (object == nullptr || object->is_finished || count < 1 || values == nullptr)
    return dnn_refused("an attribute of an unknown or finished descriptor, or none");
  const auto* const bytes = static_cast<const std::byte*>(values);
  object->values[name] = {type, count, {bytes, bytes + static_cast<size_t>(count) * size_of(type)}};
  return kSuccess;
}

int cudnnBackendGetAttribute(Backend backend, Name name, Type type, int64_t wanted, int64_t* count,
                             void* values) {
  Object* const object = objects().find(backend);
  if (object == nullptr || count == nullptr || (wanted > 0 && values == nullptr))
    return dnn_refused("an attribute of an unknown descriptor");
  if (object->kind != Kind::kEngine && !object->is_finished)
    return dnn_refused("an attribute of a descriptor that is not finished");
  if (name == Name::kHeuristicResults && type == Type::kDescriptor)
    return get_configs(*object, wanted, count, values);
  if (name == Name::kConfigEngine && type == Type::kDescriptor && wanted == 1) {
    Object* const engine = objects().find(*static_cast<Backend*>(values));
    if (engine == nullptr || engine->kind != Kind::kEngine) return dnn_refused("no engine");
    engine->engine = object->engine;
    *count = 1;
    return kSuccess;
  }
  if (object->engine == nullptr) return dnn_refused("an attribute that the descriptor lacks");
  if (name == Name::kEngineNumericalNotes && type == Type::kNumericalNote && wanted > 0)
    return give_notes(object->engine->numerical_note, count, values);
  if (name == Name::kEngineBehaviorNotes && type == Type::kBehaviorNote && wanted > 0)
    return give_notes(object->engine->behavior_note, count, values);
  if (name != Name::kPlanScratchBytes || type != Type::kInt64 || wanted != 1)
    return dnn_refused("an unknown attribute");
  const auto bytes = static_cast<int64_t>(object->engine->memory);
  std::memcpy(values, &bytes, sizeof bytes);
  *count = 1;
  return kSuccess;
}

int cudnnBackendExecute(Handle handle, Backend plan_handle, Backend pointers_handle) {
  const Object* const plan = objects().find(plan_handle);
  const Object* const pointers = objects().find(pointers_handle);
  if (plan == nullptr || plan->kind != Kind::kPlan || !plan->is_finished || pointers == nullptr ||
      pointers->kind != Kind::kPointers || !pointers->is_finished)
    return dnn_refused("a plan or pointers that are unknown or not finished");
  const Object* const held = objects().find(plan->graph);
  Graph graph;
  if (held == nullptr || *read_graph(*held, graph) != 0) return dnn_refused("the graph is gone");
  const auto* const ids = get<int64_t>(*pointers, Name::kPointerIds, Type::kInt64, 3);
  const auto* const values = get<void*>(*pointers, Name::kPointerValues, Type::kPointer, 3);
  const auto* const scratch = get<void*>(*pointers, Name::kPointerScratch, Type::kPointer, 1);
  if (handle != graph.handle || ids == nullptr || values == nullptr || scratch == nullptr)
    return dnn_refused("another handle, or an attribute of the pointers is missing");
  void** const operands[] = {&graph.c.input, &graph.c.filter, &graph.c.output};
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) {
      if (ids[k] == graph.tensors[i].id) *operands[i] = values[k];
    }
    const auto address = reinterpret_cast<uintptr_t>(*operands[i]);
    if (address == 0 || address % static_cast<uintptr_t>(graph.tensors[i].alignment) != 0)
      return dnn_refused("an operand is missing or not aligned as its tensor says");
  }
  return queue_convolution(handle, graph.c,
                           {*scratch, plan->engine->memory, plan->engine->memory,
                            plan->engine->numerical_note != kNoteNotDeterministic});
}

}  // extern "C"
