// A stand-in for libcudnn.so.9: strict about descriptors, and plain loops for convolutions.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpu/cuda/dnn_api.h"
#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/products.h"
#include "tests/cuda_standin/dnn_functions.h"
#include "tests/cuda_standin/dnn_queue.h"
#include "tests/cuda_standin/registry.h"

namespace millrace::standin {
namespace {

using namespace gpu::dnn;
using What = gpu::Convolution::What;

constexpr int kNotInitialized = 1001;
constexpr int kBadParam = 2000;
constexpr int kNotSupported = 3000;
constexpr int kExecutionFailed = 5000;

struct DnnHandle {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct Dims {
  bool is_set = false;
  int n = 0;  // output channels of filters
  int c = 0;
  int h = 0;
  int w = 0;
  int type = kDataFloat;
};
struct Window {
  bool is_set = false;
  int pad[2] = {};
  int stride[2] = {1, 1};
  int dilation[2] = {1, 1};
  int groups = 1;
  int math = kDefaultMath;
};

struct Library {
  Registry<DnnHandle, Handle> handles;
  Registry<Dims, TensorDesc> tensors;
  Registry<Dims, FilterDesc> filters;
  Registry<Window, ConvDesc> windows;
};
Library& library() {
  static Library* const kLibrary = new Library;
  return *kLibrary;
}

int refused(const std::string& why) {
  explain("cuDNN: " + why);
  return kBadParam;
}

// The algorithms of each computation, best first. The first ones test what callers must skip.
constexpr size_t kTooMuch = size_t{1} << 40U;
struct Algo {
  int number;
  int status;
  size_t memory;
  int determinism;
  int math;
};
constexpr Algo kAlgos[] = {
    {0, kSuccess, 0, 0, kFmaMath},                       // not deterministic
    {5, kNotSupported, 0, kDeterministic, kFmaMath},     //
    {4, kSuccess, kTooMuch, kDeterministic, kFmaMath},   //
    {1, kSuccess, 2048, kDeterministic, kDefaultMath},   // may round to TF32
    {3, kSuccess, 65536, kDeterministic, kFmaMath},      //
    {6, kSuccess, 4096, kDeterministic, kTensorOpMath},  // of 16-bit elements
};

// None is found for a dilation above 8, so that callers meet that case.
int find_algos(const gpu::Convolution& c, int math, int wanted, int* found, AlgoPerf* perf) {
  if (wanted < 1 || found == nullptr || perf == nullptr) return refused("null or none wanted");
  *found = 0;
  if (c.dilation[0] > 8) return kSuccess;
  for (const Algo& algo : kAlgos) {
    if (*found == wanted) break;
    if (algo.math == kDefaultMath && math == kFmaMath) continue;
    if (algo.math == kTensorOpMath && c.element == gpu::Element::kFloat32) continue;
    perf[(*found)++] = {algo.number,      algo.status, -1.0F, algo.memory,
                        algo.determinism, algo.math,   {}};
  }
  return kSuccess;
}

gpu::Element element_of(int type) {
  return type == kDataHalf       ? gpu::Element::kFloat16
         : type == kDataBfloat16 ? gpu::Element::kBfloat16
                                 : gpu::Element::kFloat32;
}

// The descriptors of a call. A convolution of which `problem` is not empty must not run.
struct Described {
  std::string problem;
  Handle given = nullptr;
  const DnnHandle* handle = nullptr;
  int math = 0;
  gpu::Convolution c;
};

Described describe(Handle handle, TensorDesc input, FilterDesc filter, ConvDesc conv,
                   TensorDesc output) {
  Described result;
  result.given = handle;
  result.handle = library().handles.find(handle);
  const Dims* const x = library().tensors.find(input);
  const Dims* const y = library().tensors.find(output);
  const Dims* const w = library().filters.find(filter);
  const Window* const window = library().windows.find(conv);
  if (result.handle == nullptr || x == nullptr || y == nullptr || w == nullptr ||
      window == nullptr || !x->is_set || !y->is_set || !w->is_set || !window->is_set) {
    result.problem = "unknown handle, or a descriptor that was not set";
    return result;
  }
  gpu::Convolution& c = result.c;
  result.math = window->math;
  c.batch = x->n;
  c.in_channels = x->c;
  c.out_channels = y->c;
  c.groups = window->groups;
  c.element = element_of(x->type);
  const int sizes[2][3] = {{x->h, y->h, w->h}, {x->w, y->w, w->w}};
  for (int i = 0; i < 2; ++i) {
    c.in[i] = sizes[i][0];
    c.out[i] = sizes[i][1];
    c.kernel[i] = sizes[i][2];
    c.stride[i] = window->stride[i];
    c.before[i] = window->pad[i];
    c.dilation[i] = window->dilation[i];
  }
  result.problem = problem_of(c, {c.before[0], c.before[1]});
  if (x->n != y->n || w->n != y->c || x->c != w->c * window->groups || y->c % window->groups != 0)
    result.problem = "batches, channels or groups that do not match";
  if (x->type != y->type || x->type != w->type) result.problem = "elements of several types";
  return result;
}

int choose(const Described& described, int wanted, int* found, AlgoPerf* perf) {
  if (!described.problem.empty()) return refused(described.problem);
  return find_algos(described.c, described.math, wanted, found, perf);
}

struct Call {
  const void* alpha;
  const void* beta;
  int algo;
  void* scratch;
  size_t scratch_bytes;
};

// Output positions along a dim whose windows have `tap` within the input: [first, last).
struct Range {
  int64_t first;
  int64_t last;
};
Range inside(const gpu::Convolution& c, int dim, int64_t tap) {
  const int64_t shift = tap * c.dilation[dim] - c.before[dim];  // input = output * stride + shift
  const int64_t stride = c.stride[dim];
  const int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t end = c.in[dim] - shift;  // of output * stride
  return {first, std::min(c.out[dim], end <= 0 ? 0 : (end + stride - 1) / stride)};
}

// Calls row(first input, first output, count, filter element) for all rows of products of which the
// three computations consist; the input advances by the stride.
template <typename Row>
void each_row(const gpu::Convolution& c, const Row& row) {
  const int64_t depth = c.in_channels / c.groups;
  const int64_t height = c.out_channels / c.groups;
  for (int64_t i = 0; i < c.batch * c.out_channels * depth; ++i) {
    const int64_t ic = i % depth;
    const int64_t oc = i / depth % c.out_channels;
    const int64_t n = i / (depth * c.out_channels);
    const int64_t image = (n * c.in_channels + oc / height * depth + ic) * c.in[0] * c.in[1];
    for (int64_t tap = 0; tap < c.kernel[0] * c.kernel[1]; ++tap) {
      const Range ys = inside(c, 0, tap / c.kernel[1]);
      const Range xs = inside(c, 1, tap % c.kernel[1]);
      const int64_t in_x = xs.first * c.stride[1] - c.before[1] + tap % c.kernel[1] * c.dilation[1];
      for (int64_t y = ys.first; y < ys.last && xs.first < xs.last; ++y) {
        const int64_t in_y = y * c.stride[0] - c.before[0] + tap / c.kernel[1] * c.dilation[0];
        row(image + in_y * c.in[1] + in_x,
            ((n * c.out_channels + oc) * c.out[0] + y) * c.out[1] + xs.first, xs.last - xs.first,
            (oc * depth + ic) * c.kernel[0] * c.kernel[1] + tap);
      }
    }
  }
}

// Sums are kept in double, and rounded by way of float.
template <typename T>
void compute(const gpu::Convolution& c) {
  const auto* const input = static_cast<const T*>(c.input);
  const auto* const filter = static_cast<const T*>(c.filter);
  const auto* const output = static_cast<const T*>(c.output);
  const bool is_output = c.what == What::kOutput;
  const bool is_input = c.what == What::kInputGradient;
  auto* const result = static_cast<T*>(is_output ? c.output : is_input ? c.input : c.filter);
  std::vector<double> sums(static_cast<size_t>(is_output  ? c.output_count()
                                               : is_input ? c.input_count()
                                                          : c.filter_count()));
  const int64_t step = c.stride[1];
  if (is_output) {
    each_row(c, [&](int64_t in, int64_t out, int64_t count, int64_t tap) {
      const auto factor = static_cast<double>(filter[tap]);
      for (int64_t x = 0; x < count; ++x)
        sums[static_cast<size_t>(out + x)] += factor * static_cast<double>(input[in + x * step]);
    });
  } else if (is_input) {
    each_row(c, [&](int64_t in, int64_t out, int64_t count, int64_t tap) {
      const auto factor = static_cast<double>(filter[tap]);
      for (int64_t x = 0; x < count; ++x)
        sums[static_cast<size_t>(in + x * step)] += factor * static_cast<double>(output[out + x]);
    });
  } else {
    each_row(c, [&](int64_t in, int64_t out, int64_t count, int64_t tap) {
      double sum = 0;
      for (int64_t x = 0; x < count; ++x)
        sum += static_cast<double>(input[in + x * step]) * static_cast<double>(output[out + x]);
      sums[static_cast<size_t>(tap)] += sum;
    });
  }
  for (size_t i = 0; i < sums.size(); ++i) result[i] = static_cast<T>(static_cast<float>(sums[i]));
}

// Results of an algorithm that is not deterministic differ from run to run, here by more than
// rounding.
template <typename T>
void disturb(const gpu::Convolution& c) {
  static std::atomic<int> runs{0};
  auto* const result = static_cast<T*>(c.what == What::kOutput          ? c.output
                                       : c.what == What::kInputGradient ? c.input
                                                                        : c.filter);
  *result = static_cast<T>(static_cast<float>(*result) + 1e-2F * static_cast<float>(++runs));
}

template <typename T>
void run(const gpu::Convolution& c, bool is_deterministic) {
  compute<T>(c);
  if (!is_deterministic) disturb<T>(c);
}
void run(const gpu::Convolution& c, bool is_deterministic) {
  switch (c.element) {
    case gpu::Element::kFloat32:
      return run<float>(c, is_deterministic);
    case gpu::Element::kFloat16:
      return run<gpu::Half>(c, is_deterministic);
    case gpu::Element::kBfloat16:
      return run<gpu::Brain>(c, is_deterministic);
  }
}

int convolve(Described described, What what, const void* input, const void* filter,
             const void* output, const Call& call) {
  if (!described.problem.empty()) return refused(described.problem);
  gpu::Convolution& c = described.c;
  float alpha = 0;
  float beta = 1;
  if (call.alpha == nullptr || call.beta == nullptr) return refused("no factors");
  std::memcpy(&alpha, call.alpha, sizeof alpha);
  std::memcpy(&beta, call.beta, sizeof beta);
  if (alpha != 1.0F || beta != 0.0F) return kNotSupported;
  const auto* const algo = std::find_if(std::begin(kAlgos), std::end(kAlgos),
                                        [&](const Algo& a) { return a.number == call.algo; });
  if (algo == std::end(kAlgos) || algo->status != kSuccess) return kNotSupported;
  c.what = what;
  c.input = const_cast<void*>(input);
  c.filter = const_cast<void*>(filter);
  c.output = const_cast<void*>(output);
  return queue_convolution(
      described.given, c,
      {call.scratch, call.scratch_bytes, algo->memory, algo->determinism == kDeterministic});
}

int removed(bool good) {
  return good ? kSuccess : refused("an unknown or destroyed handle is destroyed");
}

int set_dims(Dims* dims, int format, int type, int n, int c, int h, int w) {
  if (dims == nullptr || format != kTensorNchw ||
      (type != kDataFloat && type != kDataHalf && type != kDataBfloat16))
    return refused("unknown descriptor, format or type");
  if (n < 1 || c < 1 || h < 1 || w < 1) return refused("dims below 1");
  *dims = {true, n, c, h, w, type};
  return kSuccess;
}

}  // namespace

int queue_convolution(Handle given, const gpu::Convolution& c, const DnnWork& work) {
  const DnnHandle* const handle = library().handles.find(given);
  if (handle == nullptr) return refused("unknown handle");
  if (work.scratch_bytes < work.needed_bytes ||
      (work.needed_bytes > 0 && !is_on_device(work.scratch, work.scratch_bytes, handle->device)))
    return refused("the workspace is too small or not in device memory");
  for (const auto& [data, count] : {std::pair{c.input, c.input_count()},
                                    {c.filter, c.filter_count()},
                                    {c.output, c.output_count()}}) {
    if (!is_on_device(data, static_cast<size_t>(count * gpu::bytes_of(c.element)), handle->device))
      return refused("an operand is not within device memory");
  }
  const cudaError_t queued = enqueue(handle->stream, "a convolution", [c, work] {
    if (work.needed_bytes > 0) std::memset(work.scratch, 0xA5, work.needed_bytes);
    run(c, work.is_deterministic);
    return Progress::kDone;
  });
  return queued == cudaSuccess ? kSuccess : kExecutionFailed;
}

const char* problem_of(const gpu::Convolution& c, const int64_t (&after)[2]) {
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = c.dilation[i] * (c.kernel[i] - 1) + 1;
    const int64_t padded = c.in[i] + c.before[i] + after[i];
    if (padded < reach || (padded - reach) / c.stride[i] + 1 != c.out[i])
      return "the size of the output does not follow from input, filter and window";
  }
  return "";
}

int dnn_refused(const char* why) {
  return refused(why);
}

}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

size_t cudnnGetVersion() {
  return 91900;
}
const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kSuccess:
      return "CUDNN_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case kBadParam:
      return "CUDNN_STATUS_BAD_PARAM";
    case kNotSupported:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

int cudnnCreate(Handle* handle) {
  int device = 0;
  if (handle == nullptr) return refused("null");
  if (cudaGetDevice(&device) != cudaSuccess) return kNotInitialized;
  *handle = library().handles.add({device, nullptr});
  return kSuccess;
}
int cudnnDestroy(Handle handle) {
  return removed(library().handles.remove(handle));
}
int cudnnSetStream(Handle handle, cudaStream_t stream) {
  DnnHandle* const own = library().handles.find(handle);
  if (own == nullptr || device_of(stream) != own->device)
    return refused("unknown handle, or a stream of another device");
  own->stream = stream;
  return kSuccess;
}

int cudnnCreateTensorDescriptor(TensorDesc* desc) {
  *desc = library().tensors.add({});
  return kSuccess;
}
int cudnnDestroyTensorDescriptor(TensorDesc desc) {
  return removed(library().tensors.remove(desc));
}
int cudnnSetTensor4dDescriptor(TensorDesc desc, int format, int type, int n, int c, int h, int w) {
  return set_dims(library().tensors.find(desc), format, type, n, c, h, w);
}
int cudnnCreateFilterDescriptor(FilterDesc* desc) {
  *desc = library().filters.add({});
  return kSuccess;
}
int cudnnDestroyFilterDescriptor(FilterDesc desc) {
  return removed(library().filters.remove(desc));
}
int cudnnSetFilter4dDescriptor(FilterDesc desc, int type, int format, int k, int c, int h, int w) {
  return set_dims(library().filters.find(desc), format, type, k, c, h, w);
}

int cudnnCreateConvolutionDescriptor(ConvDesc* desc) {
  *desc = library().windows.add({});
  return kSuccess;
}
int cudnnDestroyConvolutionDescriptor(ConvDesc desc) {
  return removed(library().windows.remove(desc));
}
int cudnnSetConvolution2dDescriptor(ConvDesc desc, int pad_h, int pad_w, int stride_h, int stride_w,
                                    int dilation_h, int dilation_w, int mode, int type) {
  Window* const window = library().windows.find(desc);
  if (window == nullptr || mode != kCrossCorrelation || type != kDataFloat)
    return refused("unknown descriptor, mode or type");
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1)
    return refused("an impossible window");
  *window = {true, {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}};
  return kSuccess;
}
int cudnnSetConvolutionGroupCount(ConvDesc desc, int groups) {
  Window* const window = library().windows.find(desc);
  if (window == nullptr || groups < 1) return refused("unknown descriptor, or no groups");
  window->groups = groups;
  return kSuccess;
}
int cudnnSetConvolutionMathType(ConvDesc desc, int math) {
  Window* const window = library().windows.find(desc);
  if (window == nullptr || (math != kDefaultMath && math != kFmaMath && math != kTensorOpMath))
    return refused("unknown descriptor or math");
  window->math = math;
  return kSuccess;
}

int cudnnGetConvolutionForwardAlgorithm_v7(Handle handle, TensorDesc x, FilterDesc w, ConvDesc conv,
                                           TensorDesc y, int wanted, int* found, AlgoPerf* perf) {
  return choose(describe(handle, x, w, conv, y), wanted, found, perf);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle handle, FilterDesc w, TensorDesc dy,
                                                ConvDesc conv, TensorDesc dx, int wanted,
                                                int* found, AlgoPerf* perf) {
  return choose(describe(handle, dx, w, conv, dy), wanted, found, perf);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle handle, TensorDesc x, TensorDesc dy,
                                                  ConvDesc conv, FilterDesc dw, int wanted,
                                                  int* found, AlgoPerf* perf) {
  return choose(describe(handle, x, dw, conv, dy), wanted, found, perf);
}

int cudnnConvolutionForward(Handle handle, const void* alpha, TensorDesc x_desc, const void* x,
                            FilterDesc w_desc, const void* w, ConvDesc conv, int algo,
                            void* scratch, size_t scratch_bytes, const void* beta,
                            TensorDesc y_desc, void* y) {
  return convolve(describe(handle, x_desc, w_desc, conv, y_desc), What::kOutput, x, w, y,
                  {alpha, beta, algo, scratch, scratch_bytes});
}
int cudnnConvolutionBackwardData(Handle handle, const void* alpha, FilterDesc w_desc, const void* w,
                                 TensorDesc dy_desc, const void* dy, ConvDesc conv, int algo,
                                 void* scratch, size_t scratch_bytes, const void* beta,
                                 TensorDesc dx_desc, void* dx) {
  return convolve(describe(handle, dx_desc, w_desc, conv, dy_desc), What::kInputGradient, dx, w, dy,
                  {alpha, beta, algo, scratch, scratch_bytes});
}
int cudnnConvolutionBackwardFilter(Handle handle, const void* alpha, TensorDesc x_desc,
                                   const void* x, TensorDesc dy_desc, const void* dy, ConvDesc conv,
                                   int algo, void* scratch, size_t scratch_bytes, const void* beta,
                                   FilterDesc dw_desc, void* dw) {
  return convolve(describe(handle, x_desc, dw_desc, conv, dy_desc), What::kFilterGradient, x, dw,
                  dy, {alpha, beta, algo, scratch, scratch_bytes});
}

}  // extern "C"
