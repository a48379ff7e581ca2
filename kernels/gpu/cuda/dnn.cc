#include "kernels/gpu/cuda/dnn.h"

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>

#include "kernels/gpu/cuda/timing.h"

namespace millrace::gpu {
namespace {

constexpr int kMostAlgos = 10;
constexpr size_t kScratchBytes = size_t{512} << 20U;
constexpr float kClearlyFaster = 0.9F;

int number(int64_t value) {
  return static_cast<int>(value);
}

}  // namespace

StatusOr<std::unique_ptr<Dnn>> Dnn::open(cudaStream_t stream, bool tf32) {
  MILLRACE_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open({"libcudnn.so.9"}));
  std::unique_ptr<Dnn> dnn(new Dnn(stream, tf32));
  MILLRACE_RETURN_IF_ERROR(dnn->load(library));
  MILLRACE_RETURN_IF_ERROR(dnn->check(dnn->api_.Create(&dnn->handle_), "starting"));
  MILLRACE_RETURN_IF_ERROR(dnn->check(dnn->api_.SetStream(dnn->handle_, stream), "starting"));
  MILLRACE_ASSIGN_OR_RETURN(const dnn::EnginesApi api, DnnEngines::load(library));
  dnn->engines_.emplace(api, dnn->handle_, tf32);
  return dnn;
}

Status Dnn::load(const SharedLibrary& library) {
  const auto find = [&](const char* name, auto& to) {
    return library.find((std::string("cudnn") + name).c_str(), to);
  };
  MILLRACE_RETURN_IF_ERROR(find("GetVersion", api_.GetVersion));
  MILLRACE_RETURN_IF_ERROR(find("GetErrorString", api_.GetErrorString));
  MILLRACE_RETURN_IF_ERROR(find("Create", api_.Create));
  MILLRACE_RETURN_IF_ERROR(find("Destroy", api_.Destroy));
  MILLRACE_RETURN_IF_ERROR(find("SetStream", api_.SetStream));
  MILLRACE_RETURN_IF_ERROR(find("CreateTensorDescriptor", api_.CreateTensorDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("DestroyTensorDescriptor", api_.DestroyTensorDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("SetTensor4dDescriptor", api_.SetTensor4dDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("CreateFilterDescriptor", api_.CreateFilterDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("DestroyFilterDescriptor", api_.DestroyFilterDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("SetFilter4dDescriptor", api_.SetFilter4dDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("CreateConvolutionDescriptor", api_.CreateConvolutionDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("DestroyConvolutionDescriptor", api_.DestroyConvolutionDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("SetConvolution2dDescriptor", api_.SetConvolution2dDescriptor));
  MILLRACE_RETURN_IF_ERROR(find("SetConvolutionGroupCount", api_.SetConvolutionGroupCount));
  MILLRACE_RETURN_IF_ERROR(find("SetConvolutionMathType", api_.SetConvolutionMathType));
  MILLRACE_RETURN_IF_ERROR(
      find("GetConvolutionForwardAlgorithm_v7", api_.GetConvolutionForwardAlgorithm_v7));
  MILLRACE_RETURN_IF_ERROR(
      find("GetConvolutionBackwardDataAlgorithm_v7", api_.GetConvolutionBackwardDataAlgorithm_v7));
  MILLRACE_RETURN_IF_ERROR(find("GetConvolutionBackwardFilterAlgorithm_v7",
                                api_.GetConvolutionBackwardFilterAlgorithm_v7));
  MILLRACE_RETURN_IF_ERROR(find("ConvolutionForward", api_.ConvolutionForward));
  MILLRACE_RETURN_IF_ERROR(find("ConvolutionBackwardData", api_.ConvolutionBackwardData));
  return find("ConvolutionBackwardFilter", api_.ConvolutionBackwardFilter);
}

Dnn::~Dnn() {
  for (const auto& [key, plan] : plans_) drop(plan);
  if (handle_ != nullptr) api_.Destroy(handle_);
}

void Dnn::drop(const Plan& plan) const {
  if (plan.input != nullptr) api_.DestroyTensorDescriptor(plan.input);
  if (plan.output != nullptr) api_.DestroyTensorDescriptor(plan.output);
  if (plan.filter != nullptr) api_.DestroyFilterDescriptor(plan.filter);
  if (plan.conv != nullptr) api_.DestroyConvolutionDescriptor(plan.conv);
}

std::string Dnn::version() const {
  const size_t version = api_.GetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status Dnn::check(int status, const char* what) const {
  return dnn_status(status, what, api_.GetErrorString);
}

Status Dnn::describe(const Convolution& c, Plan& plan) const {
  const char* const what = "describing a convolution";
  const int type = dnn_type(c.element);
  MILLRACE_RETURN_IF_ERROR(check(api_.CreateTensorDescriptor(&plan.input), what));
  MILLRACE_RETURN_IF_ERROR(check(api_.CreateTensorDescriptor(&plan.output), what));
  MILLRACE_RETURN_IF_ERROR(check(api_.CreateFilterDescriptor(&plan.filter), what));
  MILLRACE_RETURN_IF_ERROR(check(api_.CreateConvolutionDescriptor(&plan.conv), what));
  MILLRACE_RETURN_IF_ERROR(
      check(api_.SetTensor4dDescriptor(plan.input, dnn::kTensorNchw, type, number(c.batch),
                                       number(c.in_channels), number(c.in[0]), number(c.in[1])),
            what));
  MILLRACE_RETURN_IF_ERROR(
      check(api_.SetTensor4dDescriptor(plan.output, dnn::kTensorNchw, type, number(c.batch),
                                       number(c.out_channels), number(c.out[0]), number(c.out[1])),
            what));
  MILLRACE_RETURN_IF_ERROR(
      check(api_.SetFilter4dDescriptor(plan.filter, type, dnn::kTensorNchw, number(c.out_channels),
                                       number(c.in_channels / c.groups), number(c.kernel[0]),
                                       number(c.kernel[1])),
            what));
  MILLRACE_RETURN_IF_ERROR(
      check(api_.SetConvolution2dDescriptor(plan.conv, number(c.before[0]), number(c.before[1]),
                                            number(c.stride[0]), number(c.stride[1]),
                                            number(c.dilation[0]), number(c.dilation[1]),
                                            dnn::kCrossCorrelation, dnn::kDataFloat),
            what));
  MILLRACE_RETURN_IF_ERROR(check(api_.SetConvolutionGroupCount(plan.conv, number(c.groups)), what));
  return check(api_.SetConvolutionMathType(plan.conv, math_for(c)), what);
}

StatusOr<std::vector<dnn::AlgoPerf>> Dnn::candidates(const Convolution& c, const Plan& plan) const {
  std::array<dnn::AlgoPerf, kMostAlgos> found{};
  int count = 0;
  int status = 0;
  switch (c.what) {
    case Convolution::What::kOutput:
      status =
          api_.GetConvolutionForwardAlgorithm_v7(handle_, plan.input, plan.filter, plan.conv,
                                                 plan.output, kMostAlgos, &count, found.data());
      break;
    case Convolution::What::kInputGradient:
      status =
          api_.GetConvolutionBackwardDataAlgorithm_v7(handle_, plan.filter, plan.output, plan.conv,
                                                      plan.input, kMostAlgos, &count, found.data());
      break;
    case Convolution::What::kFilterGradient:
      status = api_.GetConvolutionBackwardFilterAlgorithm_v7(handle_, plan.input, plan.output,
                                                             plan.conv, plan.filter, kMostAlgos,
                                                             &count, found.data());
      break;
  }
  MILLRACE_RETURN_IF_ERROR(check(status, "choosing an algorithm"));
  // prefer algorithms declared for the requested math type
  const int math = math_for(c);
  std::vector<dnn::AlgoPerf> usable;
  for (const bool any_math : {false, true}) {
    for (const dnn::AlgoPerf& algo : llvm::ArrayRef(found).take_front(static_cast<size_t>(count))) {
      if (algo.status == dnn::kSuccess && algo.determinism == dnn::kDeterministic &&
          algo.memory <= kScratchBytes && (any_math || algo.math_type == math))
        usable.push_back(algo);
    }
    if (!usable.empty()) return usable;
  }
  return Status(StatusCode::kUnimplemented, "cuDNN: no algorithm for the convolution");
}

Status Dnn::try_plan(const Convolution& c, const Plan& plan, Scratch& scratch, Choice& best) const {
  MILLRACE_ASSIGN_OR_RETURN(void* const memory, scratch.get(plan.scratch_bytes));
  const StatusOr<float> took = time_work(stream_, [&] { return run(c, plan, memory); });
  if (took.status().code() == StatusCode::kUnimplemented) return Ok();
  MILLRACE_RETURN_IF_ERROR(took.status());
  // the library's order decides where there is no clear difference
  if (!best.milliseconds.has_value() || *took <= *best.milliseconds * kClearlyFaster)
    best = {plan, *took};
  return Ok();
}

Status Dnn::try_algorithms(const Convolution& c, Plan plan, Scratch& scratch, Choice& best) const {
  // these pad both sides of a dim alike
  if (!pads_alike(c)) return Ok();
  const StatusOr<std::vector<dnn::AlgoPerf>> usable = candidates(c, plan);
  if (usable.status().code() == StatusCode::kUnimplemented) return Ok();
  MILLRACE_RETURN_IF_ERROR(usable.status());
  for (const dnn::AlgoPerf& algo : *usable) {
    plan.algo = algo.algo;
    plan.scratch_bytes = algo.memory;
    MILLRACE_RETURN_IF_ERROR(try_plan(c, plan, scratch, best));
  }
  return Ok();
}

Status Dnn::try_engines(const Convolution& c, Plan plan, Scratch& scratch, Choice& best) const {
  const StatusOr<std::vector<EnginePlan>> found = engines_->plans(c);
  if (found.status().code() == StatusCode::kUnimplemented) return Ok();
  MILLRACE_RETURN_IF_ERROR(found.status());
  for (const EnginePlan& engine : *found) {
    plan.engine = engine;
    plan.scratch_bytes = engine.scratch_bytes;
    MILLRACE_RETURN_IF_ERROR(try_plan(c, plan, scratch, best));
  }
  return Ok();
}

Status Dnn::choose(const Convolution& c, Plan& plan, Scratch& scratch) const {
  Choice best;
  MILLRACE_RETURN_IF_ERROR(try_engines(c, plan, scratch, best));
  MILLRACE_RETURN_IF_ERROR(try_algorithms(c, plan, scratch, best));
  if (!best.milliseconds.has_value())
    return {StatusCode::kUnimplemented, "cuDNN: no algorithm for the convolution runs"};
  plan = best.plan;
  return Ok();
}

Status Dnn::run(const Convolution& c, const Plan& plan, void* memory) const {
  if (plan.engine.plan != nullptr) return engines_->run(c, plan.engine, memory);
  const float one = 1.0F;
  const float zero = 0.0F;
  switch (c.what) {
    case Convolution::What::kOutput:
      return check(api_.ConvolutionForward(handle_, &one, plan.input, c.input, plan.filter,
                                           c.filter, plan.conv, plan.algo, memory,
                                           plan.scratch_bytes, &zero, plan.output, c.output),
                   "a convolution");
    case Convolution::What::kInputGradient:
      return check(api_.ConvolutionBackwardData(handle_, &one, plan.filter, c.filter, plan.output,
                                                c.output, plan.conv, plan.algo, memory,
                                                plan.scratch_bytes, &zero, plan.input, c.input),
                   "the gradient of an input");
    case Convolution::What::kFilterGradient:
      return check(api_.ConvolutionBackwardFilter(handle_, &one, plan.input, c.input, plan.output,
                                                  c.output, plan.conv, plan.algo, memory,
                                                  plan.scratch_bytes, &zero, plan.filter, c.filter),
                   "the gradient of a filter");
  }
  return {StatusCode::kInternal, "unknown kind of convolution"};
}

Status Dnn::convolve(const Convolution& c, Scratch& scratch) {
  const auto [found, is_new] = plans_.try_emplace({c.shape(), alignment_of(c)});
  Plan& plan = found->second;
  if (is_new) {
    Status status = describe(c, plan);
    if (status.ok()) status = choose(c, plan, scratch);
    if (!status.ok()) {
      drop(plan);
      plans_.erase(found);
      return status;
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(void* const memory, scratch.get(plan.scratch_bytes));
  return run(c, plan, memory);
}

}  // namespace millrace::gpu
