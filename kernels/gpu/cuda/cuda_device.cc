#include "kernels/gpu/cuda/cuda_device.h"

#include <map>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/gpu/cuda/blas.h"
#include "kernels/gpu/cuda/dnn.h"
#include "kernels/gpu/cuda/errors.h"
#include "kernels/gpu/cuda/launch.h"
#include "kernels/gpu/cuda/nccl.h"
#include "kernels/gpu/cuda/scratch.h"
#include "kernels/gpu/cuda/timing.h"

namespace millrace::gpu {
namespace {

// A difference of times that is not noise.
constexpr float kClearly = 0.95F;

// Number of GPUs. Errors: kUnimplemented, saying what is missing.
StatusOr<int> count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return Status(StatusCode::kUnimplemented,
                  fmt::format("no GPU can be used: {}", cudaGetErrorString(error)))
        .with_hint(
            "CUDA 13 needs an NVIDIA driver of version 580 or later, and a GPU that it sees");
  }
  if (count == 0) return Unimplemented("no GPU can be used: the driver sees none");
  return count;
}

std::string version_text(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

StatusOr<DeviceInfo> describe_device(int ordinal) {
  cudaDeviceProp properties{};
  MILLRACE_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&properties, ordinal), "querying properties"));
  MILLRACE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(ordinal), "selecting the GPU"));
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  MILLRACE_RETURN_IF_ERROR(
      cuda_status(cudaMemGetInfo(&free_bytes, &all_bytes), "querying free memory"));
  int driver = 0;
  MILLRACE_RETURN_IF_ERROR(cuda_status(cudaDriverGetVersion(&driver), "querying the driver"));
  DeviceInfo info;
  info.name = properties.name;
  info.capability = fmt::format("{}.{}", properties.major, properties.minor);
  info.driver = version_text(driver);
  info.memory_bytes = static_cast<int64_t>(all_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

// A CUDA graph.
class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, cudaStream_t stream, std::shared_ptr<void> scratch)
      : graph_(graph), stream_(stream), scratch_(std::move(scratch)) {}
  ~CudaRecording() override { (void)cudaGraphExecDestroy(graph_); }
  Status replay() override {
    return cuda_status(cudaGraphLaunch(graph_, stream_), "starting recorded work");
  }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  std::shared_ptr<void> scratch_;  ///< that the work uses
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, const DeviceOptions& options) : ordinal_(ordinal), options_(options) {}
  ~CudaDevice() override {
    blas_.reset();
    dnn_.reset();
    scratch_.reset();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status start() {
    MILLRACE_ASSIGN_OR_RETURN(info_, describe_device(ordinal_));
    MILLRACE_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                         "creating a stream"));
    // keep freed memory in the pool for later allocations
    cudaMemPool_t pool = nullptr;
    MILLRACE_RETURN_IF_ERROR(
        cuda_status(cudaDeviceGetDefaultMemPool(&pool, ordinal_), "querying the memory pool"));
    uint64_t most = UINT64_MAX;
    MILLRACE_RETURN_IF_ERROR(
        cuda_status(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most),
                    "setting up the memory pool"));
    scratch_ = std::make_unique<Scratch>(stream_);
    take(Blas::open(stream_, options_), blas_, "cuBLASLt");
    take(Dnn::open(stream_, options_.tf32), dnn_, "cuDNN");
    return Ok();
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  StatusOr<std::byte*> allocate(int64_t bytes) override {
    if (options_.memory_limit > 0 && bytes > options_.memory_limit - used_)
      return Status(StatusCode::kResource,
                    fmt::format("the limit is {} bytes", options_.memory_limit));
    MILLRACE_RETURN_IF_ERROR(cannot_record("allocates memory"));
    MILLRACE_RETURN_IF_ERROR(choose());
    void* data = nullptr;
    const cudaError_t error = cudaMallocAsync(&data, static_cast<size_t>(bytes), stream_);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // clears the error, which is handled here
      size_t free_bytes = 0;
      size_t all_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &all_bytes);
      return Status(StatusCode::kResource, fmt::format("the GPU has {} bytes, of which {} are free",
                                                       all_bytes, free_bytes));
    }
    MILLRACE_RETURN_IF_ERROR(cuda_status(error, "allocating memory"));
    auto* const start = static_cast<std::byte*>(data);
    sizes_[start] = bytes;
    used_ += bytes;
    return start;
  }

  void release(std::byte* data) override {
    const auto found = sizes_.find(data);
    used_ -= found->second;
    sizes_.erase(found);
    if (recording_) {
      released_.push_back(data);
      return;
    }
    (void)cudaFreeAsync(data, stream_);  // a device error is returned by the next call
  }

  Status copy_in(const std::byte* from, std::byte* to, int64_t bytes) override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("copies to the GPU"));
    return copy(from, to, bytes, cudaMemcpyHostToDevice, "copying to the GPU");
  }
  Status copy_out(const std::byte* from, std::byte* to, int64_t bytes) override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("copies from the GPU"));
    MILLRACE_RETURN_IF_ERROR(copy(from, to, bytes, cudaMemcpyDeviceToHost, "copying from the GPU"));
    return wait();
  }
  Status copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    return copy(from, to, bytes, cudaMemcpyDeviceToDevice, "copying within the GPU");
  }
  Status wait() override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("waits"));
    return cuda_status(cudaStreamSynchronize(stream_), "waiting for queued work");
  }

  Status begin_recording() override {
    MILLRACE_RETURN_IF_ERROR(choose());
    MILLRACE_RETURN_IF_ERROR(
        cuda_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                    "starting to record work"));
    recording_ = true;
    scratch_->let_grow(/*may=*/false);
    not_recorded_ = Ok();
    return Ok();
  }
  StatusOr<std::unique_ptr<Recording>> end_recording() override {
    recording_ = false;
    scratch_->let_grow(/*may=*/true);
    cudaGraph_t graph = nullptr;
    Status status = cuda_status(cudaStreamEndCapture(stream_, &graph), "recording work");
    for (std::byte* const data : std::exchange(released_, {})) (void)cudaFreeAsync(data, stream_);
    if (status.ok()) status = std::exchange(not_recorded_, Ok());
    cudaGraphExec_t made = nullptr;
    if (status.ok())
      status = cuda_status(cudaGraphInstantiate(&made, graph, 0), "preparing recorded work");
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    MILLRACE_RETURN_IF_ERROR(std::move(status));
    return std::unique_ptr<Recording>(
        std::make_unique<CudaRecording>(made, stream_, scratch_->share()));
  }

  // Falls back to the plain functors if a library does not support the product of floats; of 16-bit
  // elements, the caller converts them.
  Status multiply(const MatrixProduct& product) override {
    if (blas_ == nullptr) return Device::multiply(product);
    MILLRACE_RETURN_IF_ERROR(choose());
    Status status = blas_->multiply(product, *scratch_);
    const bool lacks = status.code() == StatusCode::kUnimplemented;
    return lacks && product.element == Element::kFloat32 ? Device::multiply(product) : status;
  }
  Status convolve(const Convolution& convolution) override {
    if (dnn_ == nullptr) return Device::convolve(convolution);
    MILLRACE_RETURN_IF_ERROR(choose());
    if (blas_ != nullptr && convolution.is_product()) {
      MILLRACE_ASSIGN_OR_RETURN(const bool as_product, is_faster_as_product(convolution));
      if (as_product) return blas_->multiply(product_of(convolution), *scratch_);
    }
    Status status = dnn_->convolve(convolution, *scratch_);
    const bool lacks = status.code() == StatusCode::kUnimplemented;
    return lacks && convolution.element == Element::kFloat32 ? Device::convolve(convolution)
                                                             : status;
  }

  Status launch_each(size_t functor, const void* data, int64_t count) override {
    MILLRACE_RETURN_IF_ERROR(choose());
    return cuda_status(cuda_launch_each(functor, data, count, stream_), "starting a kernel");
  }
  Status launch_rows(size_t functor, const void* data, int64_t rows) override {
    MILLRACE_RETURN_IF_ERROR(choose());
    return cuda_status(cuda_launch_rows(functor, data, rows, stream_), "starting a kernel");
  }

  StatusOr<Collectives*> collectives() override {
    if (nccl_ == nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(nccl_, Nccl::open(ordinal_, stream_));
      info_.libraries.push_back(nccl_->library());
    }
    return nccl_.get();
  }

 private:
  // The error of a call that cannot be recorded, which also fails the recording.
  Status cannot_record(const char* what) {
    if (!recording_) return Ok();
    not_recorded_ = {StatusCode::kInternal, fmt::format("an op {} while work is recorded", what)};
    return not_recorded_;
  }
  // Which of the libraries is faster, measured by the first convolution of the shape.
  StatusOr<bool> is_faster_as_product(const Convolution& c) {
    if (const auto known = as_products_.find(c.shape()); known != as_products_.end())
      return known->second;
    const MatrixProduct product = product_of(c);
    const StatusOr<float> multiplied =
        time_work(stream_, [&] { return blas_->multiply(product, *scratch_); });
    const StatusOr<float> convolved =
        time_work(stream_, [&] { return dnn_->convolve(c, *scratch_); });
    for (const Status& status : {multiplied.status(), convolved.status()}) {
      if (!status.ok() && status.code() != StatusCode::kUnimplemented) return status;
    }
    const bool is_faster =
        multiplied.ok() && (!convolved.ok() || *multiplied < *convolved * kClearly);
    as_products_[c.shape()] = is_faster;
    return is_faster;
  }
  // The current GPU of the CUDA runtime is a per-thread setting.
  [[nodiscard]] Status choose() const {
    return cuda_status(cudaSetDevice(ordinal_), "selecting the GPU");
  }
  Status copy(const std::byte* from, std::byte* to, int64_t bytes, cudaMemcpyKind kind,
              const char* what) {
    MILLRACE_RETURN_IF_ERROR(choose());
    return cuda_status(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), what);
  }
  template <typename Library>
  void take(StatusOr<std::unique_ptr<Library>> opened, std::unique_ptr<Library>& to,
            const char* name) {
    if (opened.ok()) {
      to = *std::move(opened);
      info_.libraries.push_back(to->version());
    } else {
      info_.missing.push_back(fmt::format("{}: {}", name, opened.status().message()));
    }
  }

  int ordinal_;
  DeviceOptions options_;
  DeviceInfo info_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Scratch> scratch_;
  std::unique_ptr<Blas> blas_;  ///< null: plain functors are used
  std::unique_ptr<Dnn> dnn_;    ///< null: plain functors are used
  std::unique_ptr<Nccl> nccl_;  ///< null: not requested so far
  std::map<Convolution::Shape, bool> as_products_;
  std::map<std::byte*, int64_t> sizes_;
  int64_t used_ = 0;
  bool recording_ = false;
  Status not_recorded_;               ///< why the recording has failed
  std::vector<std::byte*> released_;  ///< while recording
};

}  // namespace

StatusOr<std::shared_ptr<Device>> open_cuda_device(int ordinal, const DeviceOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const int count, count_devices());
  if (ordinal < 0 || ordinal >= count)
    return Unimplemented("there is no GPU {}: the driver sees {}", ordinal, count);
  auto device = std::make_shared<CudaDevice>(ordinal, options);
  MILLRACE_RETURN_IF_ERROR(device->start());
  return std::shared_ptr<Device>(std::move(device));
}

StatusOr<std::vector<DeviceInfo>> list_cuda_devices() {
  MILLRACE_ASSIGN_OR_RETURN(const int count, count_devices());
  std::vector<DeviceInfo> infos;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    // opened, in order to find the libraries that a run would use
    CudaDevice device(ordinal, {});
    MILLRACE_RETURN_IF_ERROR(device.start());
    infos.push_back(device.info());
  }
  return infos;
}

}  // namespace millrace::gpu
