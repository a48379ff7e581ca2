#include "kernels/gpu/cuda/nccl.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/gpu/cuda/errors.h"
#include "kernels/gpu/cuda/library.h"

namespace millrace::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Limit on how long the destructor waits for the other ranks after a successful run.
constexpr int64_t kFinalizeTimeoutMs = 5'000;

// Converts the result of an NCCL call to a status.
Status nccl_status(const nccl::Api& api, nccl::Comm comm, int result, const char* what) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return Ok();
  StatusCode code = StatusCode::kDistributed;
  if (result == nccl::kUnhandledCuda) code = StatusCode::kExecution;
  if (result == nccl::kInvalidArgument || result == nccl::kInvalidUsage)
    code = StatusCode::kInvalidArgument;
  Status status(code, fmt::format("NCCL: {}: {}", what, api.GetErrorString(result)));
  const char* const last = api.GetLastError(comm);
  if (last == nullptr || *last == '\0') return status;
  return std::move(status).with_note(fmt::format("NCCL's last error: {}", last));
}

int number_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kProd:
      return nccl::kProd;
    case Reduction::kMax:
      return nccl::kMax;
    case Reduction::kMin:
      return nccl::kMin;
    default:
      return nccl::kSum;
  }
}

// For the types that is_exchanged() accepts.
int number_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return nccl::kInt8;
    case DType::kInt32:
      return nccl::kInt32;
    case DType::kInt64:
      return nccl::kInt64;
    case DType::kFloat16:
      return nccl::kFloat16;
    case DType::kFloat32:
      return nccl::kFloat32;
    case DType::kFloat64:
      return nccl::kFloat64;
    case DType::kBfloat16:
      return nccl::kBfloat16;
    default:
      return nccl::kUint8;
  }
}

// Polls often at first, because most work is short, and less often later.
class PollTimer {
 public:
  explicit PollTimer(int64_t ms) : deadline_(Clock::now() + std::chrono::milliseconds(ms)) {}
  // Returns false when the deadline has passed.
  bool wait() {
    constexpr int kYields = 2'000;
    if (++turns_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return Clock::now() < deadline_;
  }

 private:
  Clock::time_point deadline_;
  int turns_ = 0;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const CommunicatorPlace& place, const nccl::Api& api, int ordinal,
                   cudaStream_t stream)
      : Communicator(place), api_(api), ordinal_(ordinal), stream_(stream) {}

  // Finalizes the communicator unless an operation has failed. Other ranks may be gone, so this has
  // a deadline, too.
  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    Status status = choose();
    if (status.ok()) status = check(api_.CommFinalize(comm_), "ending a communicator");
    if (status.ok()) {
      status = settle("ending a communicator", std::min(place().timeout_ms, kFinalizeTimeoutMs));
    }
    (void)(status.ok() ? api_.CommDestroy(comm_) : api_.CommAbort(comm_));
  }

  Status join(const CommunicatorId& id) {
    MILLRACE_RETURN_IF_ERROR(choose());
    nccl::UniqueId unique{};
    static_assert(sizeof unique.internal == sizeof id.bytes);
    std::copy(id.bytes.begin(), id.bytes.end(), unique.internal);
    nccl::Config config;
    const char* const what = "joining the other ranks";
    Status status = check(api_.CommInitRankConfig(&comm_, size(), unique, rank(), &config), what);
    if (status.ok()) status = settle(what, place().join_timeout_ms);
    if (!status.ok()) give_up();
    return status;
  }

 private:
  [[nodiscard]] Status choose() const {
    return cuda_status(cudaSetDevice(ordinal_), "selecting the GPU");
  }
  [[nodiscard]] Status check(int result, const char* what) const {
    return nccl_status(api_, comm_, result, what);
  }

  // The error of a wait that another rank of this process has ended.
  [[nodiscard]] Status check_stopped(const char* what) const {
    if (place().is_stopped == nullptr || !place().is_stopped()) return Ok();
    return {StatusCode::kDistributed, fmt::format("NCCL: {}: another device has failed", what)};
  }

  // True when the library has completed the call; work in the stream may continue.
  StatusOr<bool> is_settled(const char* what) const {
    int state = nccl::kSuccess;
    MILLRACE_RETURN_IF_ERROR(check(api_.CommGetAsyncError(comm_, &state), what));
    MILLRACE_RETURN_IF_ERROR(check(state, what));
    return state == nccl::kSuccess;
  }
  Status settle(const char* what, int64_t timeout_ms) const {
    PollTimer timer(timeout_ms);
    do {
      MILLRACE_ASSIGN_OR_RETURN(const bool settled, is_settled(what));
      if (settled) return Ok();
      MILLRACE_RETURN_IF_ERROR(check_stopped(what));
    } while (timer.wait());
    return {
        StatusCode::kDistributed,
        fmt::format("NCCL: {}: the other ranks did not respond within {} ms", what, timeout_ms)};
  }

  // Nothing else may be queued in the stream until the library has completed the call.
  Status queue(const CollectiveCall& call, const std::byte* from, std::byte* to) override {
    MILLRACE_RETURN_IF_ERROR(choose());
    const char* const what = "queueing a collective";
    MILLRACE_RETURN_IF_ERROR(check(enqueue(call, from, to), what));
    return settle(what, place().timeout_ms);
  }

  int enqueue(const CollectiveCall& call, const std::byte* from, std::byte* to) {
    const auto count = static_cast<size_t>(call.count);
    const int type = number_of(call.dtype);
    const int op = number_of(call.reduction);
    switch (call.kind) {
      case CollectiveKind::kAllReduce:
        return api_.AllReduce(from, to, count, type, op, comm_, stream_);
      case CollectiveKind::kReduce:  // only the root's target is written
        return api_.Reduce(from, rank() == call.root ? to : nullptr, count, type, op, call.root,
                           comm_, stream_);
      case CollectiveKind::kBroadcast:
        return api_.Broadcast(from, to, count, type, call.root, comm_, stream_);
      case CollectiveKind::kAllGather:
        return api_.AllGather(from, to, count, type, comm_, stream_);
      case CollectiveKind::kReduceScatter:
        return api_.ReduceScatter(from, to, count, type, op, comm_, stream_);
    }
    return nccl::kInvalidArgument;
  }

  // If a rank is lost, the work in the stream never completes, so both stream and communicator are
  // polled.
  Status finish() override {
    MILLRACE_RETURN_IF_ERROR(choose());
    const char* const what = "exchanging values";
    PollTimer timer(place().timeout_ms);
    do {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return Ok();
      if (state != cudaErrorNotReady) return cuda_status(state, what);
      MILLRACE_RETURN_IF_ERROR(is_settled(what).status());
      MILLRACE_RETURN_IF_ERROR(check_stopped(what));
    } while (timer.wait());
    return {StatusCode::kDistributed,
            fmt::format("NCCL: {}: not done after {} ms, so a rank is lost or too slow", what,
                        place().timeout_ms)};
  }

  void stop(const Status& /*reason*/) override { give_up(); }

  // Ends queued work and frees the communicator.
  void give_up() {
    if (comm_ != nullptr && choose().ok()) (void)api_.CommAbort(comm_);
    comm_ = nullptr;
  }

  nccl::Api api_;
  int ordinal_;
  cudaStream_t stream_;
  nccl::Comm comm_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Nccl>> Nccl::open(int ordinal, cudaStream_t stream) {
  std::unique_ptr<Nccl> made(new Nccl(ordinal, stream));
  MILLRACE_RETURN_IF_ERROR(made->load());
  return made;
}

Status Nccl::load() {
  MILLRACE_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open({"libnccl.so.2"}));
  const auto find = [&](const char* name, auto& to) {
    return library.find((std::string("nccl") + name).c_str(), to);
  };
  MILLRACE_RETURN_IF_ERROR(find("GetVersion", api_.GetVersion));
  MILLRACE_RETURN_IF_ERROR(find("GetErrorString", api_.GetErrorString));
  MILLRACE_RETURN_IF_ERROR(find("GetLastError", api_.GetLastError));
  MILLRACE_RETURN_IF_ERROR(find("GetUniqueId", api_.GetUniqueId));
  MILLRACE_RETURN_IF_ERROR(find("CommInitRankConfig", api_.CommInitRankConfig));
  MILLRACE_RETURN_IF_ERROR(find("CommGetAsyncError", api_.CommGetAsyncError));
  MILLRACE_RETURN_IF_ERROR(find("CommFinalize", api_.CommFinalize));
  MILLRACE_RETURN_IF_ERROR(find("CommDestroy", api_.CommDestroy));
  MILLRACE_RETURN_IF_ERROR(find("CommAbort", api_.CommAbort));
  MILLRACE_RETURN_IF_ERROR(find("AllReduce", api_.AllReduce));
  MILLRACE_RETURN_IF_ERROR(find("Reduce", api_.Reduce));
  MILLRACE_RETURN_IF_ERROR(find("Broadcast", api_.Broadcast));
  MILLRACE_RETURN_IF_ERROR(find("AllGather", api_.AllGather));
  return find("ReduceScatter", api_.ReduceScatter);
}

std::string Nccl::library() const {
  int version = 0;
  (void)api_.GetVersion(&version);  // fails for a null pointer only
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

StatusOr<CommunicatorId> Nccl::make_id() {
  nccl::UniqueId unique{};
  MILLRACE_RETURN_IF_ERROR(
      nccl_status(api_, nullptr, api_.GetUniqueId(&unique), "making the id of a communicator"));
  CommunicatorId id;
  std::copy(std::begin(unique.internal), std::end(unique.internal), id.bytes.begin());
  return id;
}

StatusOr<std::unique_ptr<Communicator>> Nccl::join(const CommunicatorId& id,
                                                   const CommunicatorPlace& place) {
  MILLRACE_RETURN_IF_ERROR(check_place(place));
  auto communicator = std::make_unique<NcclCommunicator>(place, api_, ordinal_, stream_);
  if (Status status = communicator->join(id); !status.ok())
    return std::move(status).with_note(
        fmt::format("rank {} of {} joins the others", place.rank, place.size));
  return std::unique_ptr<Communicator>(std::move(communicator));
}

StatusOr<std::string> find_nccl() {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Nccl> nccl, Nccl::open(0, nullptr));
  return nccl->library();
}

}  // namespace millrace::gpu
