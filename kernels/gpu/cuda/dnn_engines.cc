#include "kernels/gpu/cuda/dnn_engines.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace millrace::gpu {
namespace dnn_engines {

constexpr size_t kMostPlans = 10;
constexpr size_t kMostScratchBytes = size_t{512} << 20U;
// Numbers of the tensors in a graph.
constexpr int64_t kIds[] = {1, 2, 3};  // input, filter, output

// What the attributes of an operation are called.
struct Operation {
  dnn::Kind kind;
  dnn::Name alpha, beta, convolution, input, filter, output;
};
StatusOr<Operation> operation_of(Convolution::What what) {
  using dnn::Kind;
  using dnn::Name;
  switch (what) {
    case Convolution::What::kOutput:
      return Operation{
          Kind::kForward,      Name::kForwardAlpha,  Name::kForwardBeta,  Name::kForwardConvolution,
          Name::kForwardInput, Name::kForwardFilter, Name::kForwardOutput};
    case Convolution::What::kInputGradient:
      return Operation{Kind::kBackwardData,      Name::kBackwardDataAlpha,
                       Name::kBackwardDataBeta,  Name::kBackwardDataConvolution,
                       Name::kBackwardDataInput, Name::kBackwardDataFilter,
                       Name::kBackwardDataOutput};
    case Convolution::What::kFilterGradient:
      return Operation{Kind::kBackwardFilter,      Name::kBackwardFilterAlpha,
                       Name::kBackwardFilterBeta,  Name::kBackwardFilterConvolution,
                       Name::kBackwardFilterInput, Name::kBackwardFilterFilter,
                       Name::kBackwardFilterOutput};
  }
  return Status(StatusCode::kInternal, "unknown kind of convolution");
}

int64_t reach(const Convolution& c, int dim) {
  return c.dilation[dim] * (c.kernel[dim] - 1) + 1;
}

// Padding at the bottom or right.
int64_t after(const Convolution& c, int dim) {
  const int64_t read = (c.out[dim] - 1) * c.stride[dim] + reach(c, dim) - c.before[dim];
  return std::max<int64_t>(read - c.in[dim], 0);
}

}  // namespace dnn_engines

using namespace dnn_engines;

Status dnn_status(int status, const char* what, const char* (*error_string)(int)) {
  if (status == dnn::kSuccess) return Ok();
  const bool is_unsupported = status / 1000 == 3;  // CUDNN_STATUS_NOT_SUPPORTED and its variants
  return {is_unsupported ? StatusCode::kUnimplemented : StatusCode::kExecution,
          fmt::format("cuDNN: {}: {}", what, error_string(status))};
}

int dnn_type(Element element) {
  switch (element) {
    case Element::kFloat16:
      return dnn::kDataHalf;
    case Element::kBfloat16:
      return dnn::kDataBfloat16;
    default:
      return dnn::kDataFloat;
  }
}

bool pads_alike(const Convolution& c) {
  for (int i = 0; i < 2; ++i) {
    if ((c.in[i] + 2 * c.before[i] - reach(c, i)) / c.stride[i] + 1 != c.out[i]) return false;
  }
  return true;
}

int64_t alignment_of(const Convolution& c) {
  const auto all = reinterpret_cast<uintptr_t>(c.input) | reinterpret_cast<uintptr_t>(c.filter) |
                   reinterpret_cast<uintptr_t>(c.output);
  for (const uintptr_t bytes : {uintptr_t{16}, uintptr_t{8}, uintptr_t{4}}) {
    if (all % bytes == 0) return static_cast<int64_t>(bytes);
  }
  return 2;
}

StatusOr<dnn::EnginesApi> DnnEngines::load(const SharedLibrary& library) {
  dnn::EnginesApi api{};
  const auto find = [&](const char* name, auto& to) {
    return library.find((std::string("cudnnBackend") + name).c_str(), to);
  };
  MILLRACE_RETURN_IF_ERROR(find("CreateDescriptor", api.CreateDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("DestroyDescriptor", api.DestroyDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("Finalize", api.Finalize));
  MILLRACE_RETURN_IF_ERROR(find("SetAttribute", api.SetAttribute));
  MILLRACE_RETURN_IF_ERROR(find("GetAttribute", api.GetAttribute));
  MILLRACE_RETURN_IF_ERROR(find("Execute", api.Execute));
  MILLRACE_RETURN_IF_ERROR(library.find("cudnnGetErrorString", api.GetErrorString));
  return api;
}

Status DnnEngines::check(int status, const char* what) const {
  return dnn_status(status, what, api_.GetErrorString);
}

StatusOr<DnnEngines::Descriptor> DnnEngines::create(dnn::Kind kind) const {
  dnn::Backend made = nullptr;
  MILLRACE_RETURN_IF_ERROR(check(api_.CreateDescriptor(kind, &made), "creating a descriptor"));
  return Descriptor(made, [destroy = api_.DestroyDescriptor](void* old) { (void)destroy(old); });
}

Status DnnEngines::set(const Descriptor& of, dnn::Name name, dnn::Type type, int64_t count,
                       const void* values) const {
  return check(api_.SetAttribute(of.get(), name, type, count, values), "describing a graph");
}

Status DnnEngines::set(const Descriptor& of, dnn::Name name, const Descriptor& value) const {
  const dnn::Backend raw = value.get();
  return set(of, name, dnn::Type::kDescriptor, 1, &raw);
}

Status DnnEngines::finish(const Descriptor& of) const {
  return check(api_.Finalize(of.get()), "planning a convolution");
}

StatusOr<DnnEngines::Descriptor> DnnEngines::tensor(const Convolution& c, int64_t id,
                                                    const int64_t (&dims)[4]) const {
  const int type = dnn_type(c.element);
  const int64_t alignment = alignment_of(c);
  const int64_t strides[] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
  MILLRACE_ASSIGN_OR_RETURN(Descriptor made, create(dnn::Kind::kTensor));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kTensorType, dnn::Type::kDataType, 1, &type));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kTensorDims, dnn::Type::kInt64, 4, dims));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kTensorStrides, dnn::Type::kInt64, 4, strides));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kTensorId, dnn::Type::kInt64, 1, &id));
  MILLRACE_RETURN_IF_ERROR(
      set(made, dnn::Name::kTensorAlignment, dnn::Type::kInt64, 1, &alignment));
  MILLRACE_RETURN_IF_ERROR(finish(made));
  return made;
}

StatusOr<DnnEngines::Descriptor> DnnEngines::window(const Convolution& c) const {
  const int type = dnn::kDataFloat;
  const int mode = dnn::kCrossCorrelation;
  const int64_t dims = 2;
  // more engines take the same padding on both sides
  const bool alike = pads_alike(c);
  const int64_t padding[] = {alike ? c.before[0] : after(c, 0), alike ? c.before[1] : after(c, 1)};
  MILLRACE_ASSIGN_OR_RETURN(Descriptor made, create(dnn::Kind::kConvolution));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kConvolutionType, dnn::Type::kDataType, 1, &type));
  MILLRACE_RETURN_IF_ERROR(
      set(made, dnn::Name::kConvolutionMode, dnn::Type::kConvolutionMode, 1, &mode));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kSpatialDims, dnn::Type::kInt64, 1, &dims));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kDilations, dnn::Type::kInt64, 2, c.dilation));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kStrides, dnn::Type::kInt64, 2, c.stride));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kPaddingBefore, dnn::Type::kInt64, 2, c.before));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kPaddingAfter, dnn::Type::kInt64, 2, padding));
  MILLRACE_RETURN_IF_ERROR(finish(made));
  return made;
}

StatusOr<std::vector<DnnEngines::Descriptor>> DnnEngines::graph(const Convolution& c) const {
  MILLRACE_ASSIGN_OR_RETURN(const Operation names, operation_of(c.what));
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor input,
                            tensor(c, kIds[0], {c.batch, c.in_channels, c.in[0], c.in[1]}));
  MILLRACE_ASSIGN_OR_RETURN(
      const Descriptor filter,
      tensor(c, kIds[1], {c.out_channels, c.in_channels / c.groups, c.kernel[0], c.kernel[1]}));
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor output,
                            tensor(c, kIds[2], {c.batch, c.out_channels, c.out[0], c.out[1]}));
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor conv, window(c));
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor operation, create(names.kind));
  const float one = 1.0F;
  const float zero = 0.0F;
  MILLRACE_RETURN_IF_ERROR(set(operation, names.alpha, dnn::Type::kFloat, 1, &one));
  MILLRACE_RETURN_IF_ERROR(set(operation, names.beta, dnn::Type::kFloat, 1, &zero));
  MILLRACE_RETURN_IF_ERROR(set(operation, names.convolution, conv));
  MILLRACE_RETURN_IF_ERROR(set(operation, names.input, input));
  MILLRACE_RETURN_IF_ERROR(set(operation, names.filter, filter));
  MILLRACE_RETURN_IF_ERROR(set(operation, names.output, output));
  MILLRACE_RETURN_IF_ERROR(finish(operation));

  MILLRACE_ASSIGN_OR_RETURN(const Descriptor graph, create(dnn::Kind::kGraph));
  MILLRACE_RETURN_IF_ERROR(set(graph, dnn::Name::kGraphHandle, dnn::Type::kHandle, 1, &handle_));
  MILLRACE_RETURN_IF_ERROR(set(graph, dnn::Name::kGraphOperations, operation));
  MILLRACE_RETURN_IF_ERROR(finish(graph));
  return std::vector{graph, operation, conv, input, filter, output};
}

StatusOr<std::vector<DnnEngines::Descriptor>> DnnEngines::configs(const Descriptor& graph) const {
  const int mode = dnn::kHeuristicA;
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor heuristic, create(dnn::Kind::kHeuristic));
  MILLRACE_RETURN_IF_ERROR(set(heuristic, dnn::Name::kHeuristicGraph, graph));
  MILLRACE_RETURN_IF_ERROR(
      set(heuristic, dnn::Name::kHeuristicMode, dnn::Type::kHeuristicMode, 1, &mode));
  MILLRACE_RETURN_IF_ERROR(finish(heuristic));
  const auto get = [&](int64_t wanted, int64_t& count, void* values) {
    return check(api_.GetAttribute(heuristic.get(), dnn::Name::kHeuristicResults,
                                   dnn::Type::kDescriptor, wanted, &count, values),
                 "choosing engines");
  };
  int64_t count = 0;
  MILLRACE_RETURN_IF_ERROR(get(0, count, nullptr));
  std::vector<Descriptor> result;
  std::vector<dnn::Backend> raw;
  for (int64_t i = 0; i < count; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(Descriptor config, create(dnn::Kind::kEngineConfig));
    raw.push_back(config.get());
    result.push_back(std::move(config));
  }
  MILLRACE_RETURN_IF_ERROR(get(count, count, raw.data()));
  result.resize(static_cast<size_t>(count));
  return result;
}

StatusOr<std::vector<int>> DnnEngines::notes(const Descriptor& engine, dnn::Name name,
                                             dnn::Type type, int most) const {
  std::vector<int> found(static_cast<size_t>(most));
  int64_t count = 0;
  MILLRACE_RETURN_IF_ERROR(
      check(api_.GetAttribute(engine.get(), name, type, most, &count, found.data()),
            "asking for an engine's notes"));
  found.resize(static_cast<size_t>(std::min<int64_t>(count, most)));
  return found;
}

StatusOr<bool> DnnEngines::is_usable(const Descriptor& config, bool may_round) const {
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor engine, create(dnn::Kind::kEngine));
  dnn::Backend raw = engine.get();
  int64_t count = 0;
  MILLRACE_RETURN_IF_ERROR(check(api_.GetAttribute(config.get(), dnn::Name::kConfigEngine,
                                                   dnn::Type::kDescriptor, 1, &count, &raw),
                                 "asking for an engine"));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int> numerical,
                            notes(engine, dnn::Name::kEngineNumericalNotes,
                                  dnn::Type::kNumericalNote, dnn::kNumericalNotes));
  for (const int note : numerical) {
    if (note == dnn::kNoteNotDeterministic || note == dnn::kNoteReducedSums) return false;
    if (!may_round && (note == dnn::kNoteTensorCore || note == dnn::kNoteDownConvertInputs))
      return false;
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int> behavior,
                            notes(engine, dnn::Name::kEngineBehaviorNotes, dnn::Type::kBehaviorNote,
                                  dnn::kBehaviorNotes));
  return std::find(behavior.begin(), behavior.end(), dnn::kNoteRuntimeCompilation) ==
         behavior.end();
}

StatusOr<EnginePlan> DnnEngines::plan(const Descriptor& config,
                                      const std::vector<Descriptor>& graph) const {
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor made, create(dnn::Kind::kPlan));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kPlanHandle, dnn::Type::kHandle, 1, &handle_));
  MILLRACE_RETURN_IF_ERROR(set(made, dnn::Name::kPlanConfig, config));
  MILLRACE_RETURN_IF_ERROR(finish(made));
  int64_t bytes = 0;
  int64_t count = 0;
  MILLRACE_RETURN_IF_ERROR(check(api_.GetAttribute(made.get(), dnn::Name::kPlanScratchBytes,
                                                   dnn::Type::kInt64, 1, &count, &bytes),
                                 "asking for a plan's memory"));
  // a plan refers to its configuration, and that to the graph
  struct Parts {
    std::vector<Descriptor> graph;
    Descriptor config;
    Descriptor plan;
  };
  auto parts = std::make_shared<Parts>(Parts{graph, config, made});
  return EnginePlan{std::shared_ptr<void>(parts, made.get()), static_cast<size_t>(bytes)};
}

StatusOr<std::vector<EnginePlan>> DnnEngines::plans(const Convolution& c) const {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Descriptor> parts, graph(c));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Descriptor> found, configs(parts.front()));
  const bool may_round = tf32_ || c.element != Element::kFloat32;
  std::vector<EnginePlan> result;
  for (const Descriptor& config : found) {
    if (result.size() == kMostPlans) break;
    MILLRACE_ASSIGN_OR_RETURN(const bool usable, is_usable(config, may_round));
    if (!usable) continue;
    StatusOr<EnginePlan> made = plan(config, parts);
    if (made.status().code() == StatusCode::kUnimplemented) continue;
    MILLRACE_RETURN_IF_ERROR(made.status());
    if (made->scratch_bytes <= kMostScratchBytes) result.push_back(*std::move(made));
  }
  return result;
}

Status DnnEngines::run(const Convolution& c, const EnginePlan& plan, void* scratch) const {
  const void* const values[] = {c.input, c.filter, c.output};
  MILLRACE_ASSIGN_OR_RETURN(const Descriptor pointers, create(dnn::Kind::kPointers));
  MILLRACE_RETURN_IF_ERROR(set(pointers, dnn::Name::kPointerIds, dnn::Type::kInt64, 3, kIds));
  MILLRACE_RETURN_IF_ERROR(
      set(pointers, dnn::Name::kPointerValues, dnn::Type::kPointer, 3, values));
  MILLRACE_RETURN_IF_ERROR(
      set(pointers, dnn::Name::kPointerScratch, dnn::Type::kPointer, 1, &scratch));
  MILLRACE_RETURN_IF_ERROR(finish(pointers));
  return check(api_.Execute(handle_, plan.plan.get(), pointers.get()), "a convolution");
}

}  // namespace millrace::gpu
