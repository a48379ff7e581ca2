// A stand-in for libnccl.so.2: communicators that do not block, between threads and processes of
// one machine. Ranks make progress in their own calls only: ncclCommGetAsyncError(), and what runs
// the work of a stream.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/gpu/cuda/nccl_api.h"
#include "tests/cuda_standin/nccl_functions.h"
#include "tests/cuda_standin/nccl_reduce.h"
#include "tests/cuda_standin/nccl_shared.h"
#include "tests/cuda_standin/registry.h"

namespace millrace::standin {
namespace {

using namespace gpu::nccl;

constexpr int kSystemError = 2;
constexpr const char* kMark = "millrace-standin-nccl-";

enum Kind : int { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };

std::string& last_error() {
  thread_local std::string text;
  return text;
}
int refused(int code, const std::string& why) {
  last_error() = why;
  explain("NCCL: " + why);
  return code;
}

// A rank of a communicator. Queued work keeps it alive.
struct Rank {
  ~Rank() {
    if (shared != nullptr) ::munmap(shared, sizeof *shared);
    ::shm_unlink(name.c_str());  // fails if another rank has done it
  }

  std::string name;  // of the shared file
  SharedRanks* shared = nullptr;
  int rank = 0;
  int size = 1;
  int device = 0;
  std::atomic<int> error{kSuccess};
  std::atomic<bool> is_stopped{false};  // aborted: queued work ends
  std::atomic<uint64_t> chunks{0};      // that queued calls have up to now
  std::atomic<int> queued{0};           // calls that are not done
  int calls = 0;                        // so far
  bool was_asked = false;               // since the last call
  bool is_final = false;
  std::string text;                       // why there is an error
  std::function<cudaError_t()> to_queue;  // of a call that is in progress

  SharedRanks::Rank& own() const { return shared->ranks[static_cast<size_t>(rank)]; }
  [[nodiscard]] bool all_joined() const { return shared->joined.load() >= size; }
};

using Ranks = Registry<std::shared_ptr<Rank>, Comm>;
Ranks& ranks() {
  static Ranks* const kRanks = new Ranks;
  return *kRanks;
}

std::shared_ptr<Rank> find(Comm comm) {
  const auto* const found = ranks().find(comm);
  return found == nullptr ? nullptr : *found;
}

int fail(Rank& rank, int code, const std::string& why) {
  rank.text = why;
  rank.error = code;
  return refused(code, why);
}

// MILLRACE_STANDIN_NCCL_FAILS=R:N lets call N of rank R fail, from 1; R:N:later the work that it
// has queued.
bool is_to_fail(const Rank& rank, bool later) {
  const char* const text = std::getenv("MILLRACE_STANDIN_NCCL_FAILS");
  int which = 0;
  int call = 0;
  char end = 0;
  const int read = text == nullptr ? 0 : std::sscanf(text, "%d:%d:%c", &which, &call, &end);
  return read == (later ? 3 : 2) && rank.rank == which && rank.calls == call;
}

// A call in a stream.
class Exchange {
 public:
  Exchange(std::shared_ptr<Rank> rank, const SharedRanks::Statement& statement, const void* from,
           void* to)
      : rank_(std::move(rank)),
        statement_(statement),
        element_(bytes_of(static_cast<int>(statement.type))),
        from_(static_cast<const std::byte*>(from)),
        to_(static_cast<std::byte*>(to)) {
    const auto count = static_cast<size_t>(statement.count);
    is_to_fail_ = is_to_fail(*rank_, true);
    total_ = statement.kind == kReduceScatter ? count * static_cast<size_t>(rank_->size) : count;
    ++rank_->queued;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { --rank_->queued; }

  // All elements of the call, as far as the other ranks are.
  Progress advance() {
    if (is_to_fail_ && rank_->error == kSuccess)
      fail(*rank_, kSystemError, "queued work fails, as MILLRACE_STANDIN_NCCL_FAILS says");
    while (at_ < total_) {
      if (rank_->is_stopped || rank_->error != kSuccess) {
        return rank_->is_stopped ? Progress::kDone : Progress::kLater;
      }
      if (!is_published_ && !publish()) return Progress::kLater;
      if (!read()) return Progress::kLater;
    }
    return Progress::kDone;
  }

 private:
  [[nodiscard]] size_t chunk() const {
    return std::min(total_ - at_, SharedRanks::kChunkBytes / element_);
  }

  bool publish() {
    SharedRanks::Rank& own = rank_->own();
    const uint64_t number = own.published.load() + 1;
    for (int r = 0; r < rank_->size; ++r) {
      if (rank_->shared->ranks[static_cast<size_t>(r)].consumed.load() + 1 < number) return false;
    }
    std::memcpy(own.slot.data(), from_ + at_ * element_, chunk() * element_);
    own.statement = statement_;
    own.published.store(number);
    is_published_ = true;
    return true;
  }

  bool read() {
    SharedRanks::Rank& own = rank_->own();
    const uint64_t number = own.published.load();
    for (int r = 0; r < rank_->size; ++r) {
      const SharedRanks::Rank& other = rank_->shared->ranks[static_cast<size_t>(r)];
      if (other.published.load() < number) return false;
      if (other.statement == statement_) continue;
      fail(*rank_, kInvalidUsage, "ranks make different calls: kind, type, op, root or count");
      return false;
    }
    take();
    at_ += chunk();
    is_published_ = false;
    own.consumed.store(number);
    return true;
  }

  const std::byte* slot(int64_t r) const {
    return rank_->shared->ranks[static_cast<size_t>(r)].slot.data();
  }

  // The result of the chunk.
  void take() {
    const size_t bytes = chunk() * element_;
    if (statement_.kind == kBroadcast) {
      std::memcpy(to_ + at_ * element_, slot(statement_.root), bytes);
      return;
    }
    if (statement_.kind == kAllGather) {
      for (int r = 0; r < rank_->size; ++r)
        std::memcpy(to_ + (static_cast<size_t>(r) * total_ + at_) * element_, slot(r), bytes);
      return;
    }
    if (statement_.kind == kReduce && statement_.root != rank_->rank) return;
    std::vector<std::byte> combined(slot(0), slot(0) + bytes);
    for (int r = 1; r < rank_->size; ++r)
      combine(static_cast<int>(statement_.type), static_cast<int>(statement_.op), combined.data(),
              slot(r), chunk());
    // elements of this chunk that are wanted: [first, last)
    size_t first = at_;
    size_t last = at_ + chunk();
    size_t shift = 0;
    if (statement_.kind == kReduceScatter) {
      const auto count = static_cast<size_t>(statement_.count);
      shift = static_cast<size_t>(rank_->rank) * count;
      first = std::max(first, shift);
      last = std::min(last, shift + count);
    }
    if (first < last)
      std::memcpy(to_ + (first - shift) * element_, combined.data() + (first - at_) * element_,
                  (last - first) * element_);
  }

  std::shared_ptr<Rank> rank_;
  SharedRanks::Statement statement_;
  size_t element_;
  const std::byte* from_;
  std::byte* to_;
  size_t total_ = 0;  // elements that the rank sends
  size_t at_ = 0;     // that are done
  bool is_published_ = false;
  bool is_to_fail_ = false;
};

int call(const SharedRanks::Statement& statement, const void* from, void* to, Comm comm,
         cudaStream_t stream) {
  const std::shared_ptr<Rank> rank = find(comm);
  if (rank == nullptr) return refused(kInvalidArgument, "unknown communicator");
  if (rank->error != kSuccess) return rank->error;
  if (!rank->all_joined() || rank->to_queue != nullptr)
    return fail(*rank, kInvalidUsage, "the previous call is still in progress");
  if (rank->is_final) return fail(*rank, kInvalidUsage, "the communicator was finalized");
  ++rank->calls;
  if (is_to_fail(*rank, false))
    return fail(*rank, kSystemError, "the call fails, as MILLRACE_STANDIN_NCCL_FAILS says");
  const size_t element = bytes_of(static_cast<int>(statement.type));
  if (element == 0 || statement.op < kSum || statement.op > kMin || statement.root < 0 ||
      statement.root >= rank->size || statement.count <= 0)
    return fail(*rank, kInvalidArgument, "type, op, root or count");
  if (device_of(stream) != rank->device)
    return fail(*rank, kInvalidUsage, "the stream belongs to another device");
  if (is_capturing(stream)) return fail(*rank, kInvalidUsage, "the stream captures a graph");
  const size_t bytes = static_cast<size_t>(statement.count) * element;
  const auto all = static_cast<size_t>(rank->size);
  const size_t read = statement.kind == kReduceScatter ? bytes * all : bytes;
  const size_t written = statement.kind == kAllGather ? bytes * all : bytes;
  const bool has_result = statement.kind != kReduce || statement.root == rank->rank;
  if (!is_on_device(from, read, rank->device) ||
      (has_result && !is_on_device(to, written, rank->device)))
    return fail(*rank, kInvalidArgument, "an operand is not within device memory");
  const auto exchange = std::make_shared<Exchange>(rank, statement, from, to);
  // queued when the caller has asked for the state: other work must not be queued before
  rank->was_asked = false;
  rank->to_queue = [=] {
    return enqueue(stream, "a collective", [exchange] { return exchange->advance(); });
  };
  return kInProgress;
}

// Maps the shared file of an id; the first rank creates it.
SharedRanks* map_shared(const std::string& name) {
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return nullptr;
  void* data = MAP_FAILED;
  if (::ftruncate(file, sizeof(SharedRanks)) == 0)
    data = ::mmap(nullptr, sizeof(SharedRanks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return data == MAP_FAILED ? nullptr : static_cast<SharedRanks*>(data);
}

// Checks the ranks that have joined, once all have.
int check_joined(Rank& rank) {
  for (int r = 0; r < rank.size; ++r) {
    const SharedRanks::Rank& other = rank.shared->ranks[static_cast<size_t>(r)];
    if (other.size != rank.size) return fail(rank, kInvalidArgument, "ranks state different sizes");
    if (r != rank.rank && other.device == rank.device)
      return fail(rank, kInvalidUsage, "two ranks use one GPU");
  }
  return kSuccess;
}

}  // namespace
}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

int ncclGetVersion(int* version) {
  if (version == nullptr) return refused(kInvalidArgument, "null");
  *version = 22800;
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kUnhandledCuda:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}
const char* ncclGetLastError(Comm /*comm*/) {
  return millrace::standin::last_error().c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  if (id == nullptr) return refused(kInvalidArgument, "null");
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/%s%d-%08x%08x", kMark, ::getpid(), random(),
                random());
  return kSuccess;
}

int ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (comm == nullptr || size < 1 || size > SharedRanks::kMostRanks || rank < 0 || rank >= size)
    return refused(kInvalidArgument, "null, or a rank out of range");
  if (config == nullptr || config->blocking != 0 || config->magic != Config().magic ||
      config->size != sizeof(Config) || config->version != 21400)
    return refused(kInvalidArgument, "a configuration that the stand-in lacks");
  const std::string name(id.internal, ::strnlen(id.internal, sizeof id.internal));
  if (name.rfind(std::string("/") + kMark, 0) != 0)
    return refused(kInvalidArgument, "an id that ncclGetUniqueId() has not made");
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return refused(kUnhandledCuda, "no device");
  auto made = std::make_shared<Rank>();
  made->name = name;
  made->shared = map_shared(name);
  if (made->shared == nullptr) return refused(kSystemError, "no shared memory");
  made->rank = rank;
  made->size = size;
  made->device = device;
  if (made->own().has_joined.exchange(1) != 0)
    return refused(kInvalidUsage, "another process or thread has this rank");
  made->own().device = device;
  made->own().size = size;
  ++made->shared->joined;
  *comm = ranks().add(std::move(made));
  return kInProgress;
}

int ncclCommGetAsyncError(Comm comm, int* result) {
  const std::shared_ptr<Rank> rank = find(comm);
  if (rank == nullptr || result == nullptr) return refused(kInvalidArgument, "unknown or null");
  if (rank->error == kSuccess && rank->all_joined()) check_joined(*rank);
  *result = rank->error;
  if (*result != kSuccess) {
    millrace::standin::last_error() = rank->text;
    return kSuccess;
  }
  // the first question after a call is always too early
  if (!rank->all_joined() || !rank->was_asked || (rank->is_final && rank->queued > 0)) {
    rank->was_asked = true;
    *result = kInProgress;
    return kSuccess;
  }
  if (rank->to_queue != nullptr) {
    const cudaError_t queued = rank->to_queue();
    rank->to_queue = nullptr;
    if (queued != cudaSuccess) *result = fail(*rank, kUnhandledCuda, cudaGetErrorString(queued));
  }
  return kSuccess;
}

int ncclCommFinalize(Comm comm) {
  const std::shared_ptr<Rank> rank = find(comm);
  if (rank == nullptr) return refused(kInvalidArgument, "unknown communicator");
  if (rank->error != kSuccess) return rank->error;
  rank->is_final = true;
  rank->was_asked = false;
  return kInProgress;
}

int ncclCommDestroy(Comm comm) {
  const std::shared_ptr<Rank> rank = find(comm);
  if (rank == nullptr) return refused(kInvalidArgument, "unknown communicator");
  if (!rank->is_final) return refused(kInvalidUsage, "a communicator must be finalized first");
  return ranks().remove(comm) ? kSuccess : kInvalidArgument;
}

int ncclCommAbort(Comm comm) {
  const std::shared_ptr<Rank> rank = find(comm);
  if (rank == nullptr) return refused(kInvalidArgument, "unknown communicator");
  rank->is_stopped = true;
  rank->to_queue = nullptr;
  return ranks().remove(comm) ? kSuccess : kInvalidArgument;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm comm,
                  cudaStream_t stream) {
  return call({kAllReduce, type, op, 0, static_cast<int64_t>(count)}, from, to, comm, stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, Comm comm,
               cudaStream_t stream) {
  return call({kReduce, type, op, root, static_cast<int64_t>(count)}, from, to, comm, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                  cudaStream_t stream) {
  return call({kBroadcast, type, kSum, root, static_cast<int64_t>(count)}, from, to, comm, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Comm comm,
                  cudaStream_t stream) {
  return call({kAllGather, type, kSum, 0, static_cast<int64_t>(count)}, from, to, comm, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, Comm comm,
                      cudaStream_t stream) {
  return call({kReduceScatter, type, op, 0, static_cast<int64_t>(count)}, from, to, comm, stream);
}

}  // extern "C"
