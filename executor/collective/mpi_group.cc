#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include "executor/collective/engines.h"
#include "executor/collective/pairwise_group.h"
#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "framework/base/polled_deadline.h"

// MPI only moves messages. Its collectives have no deadline: a stopped rank would block the others
// forever. So all waits are tests of messages, and PairwiseGroup has the algorithms.
namespace millrace::executor {
namespace {

constexpr int kDataTag = 1;
constexpr int kRollTag = 2;
constexpr int64_t kMostMessageBytes = int64_t{1} << 30U;  // MPI counts in int
constexpr int kTestsBetweenLooks = 512;
// MPI sends messages up to about 4 KiB at once, including the header; longer ones first need a
// round trip. So short values are sent in pieces of that size. Longer values are sent in a few
// large segments, and values that do not fit a cache in segments such that those in transit do.
constexpr int64_t kPieceBytes = 3584;
constexpr int64_t kLongestInPieces = 32 << 10;
constexpr int64_t kSegmentBytes = 256 << 10;
constexpr int64_t kLongestCached = 1 << 20;
constexpr int64_t kSmallSegmentBytes = 64 << 10;
// Maximum number of segments in transit at a time.
constexpr int64_t kAhead = 4;

int64_t segment_of(int64_t bytes) {
  if (bytes <= kLongestInPieces) return kPieceBytes;
  return bytes <= kLongestCached ? kSegmentBytes : kSmallSegmentBytes;
}
// The remaining ranks must respond within this time.
constexpr auto kRollTime = std::chrono::milliseconds(1000);

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

class MpiGroup final : public PairwiseGroup {
 public:
  /// \param owns_mpi  MPI is finalized with the group
  MpiGroup(const GroupSettings& settings, MPI_Comm communicator, bool owns_mpi)
      : PairwiseGroup(settings), communicator_(communicator), owns_mpi_(owns_mpi) {}
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  // After a failure some messages may never complete; freeing the communicator would wait for them.
  ~MpiGroup() override {
    if (!state().ok()) return;
    MPI_Comm_free(&communicator_);
    if (owns_mpi_) MPI_Finalize();
  }

  [[nodiscard]] std::string_view engine() const override { return "mpi"; }

 private:
  Status check(int code, const char* what) const {
    if (code == MPI_SUCCESS) return Ok();
    return {StatusCode::kDistributed,
            fmt::format("rank {} of {} failed in {}: {}", rank(), size(), what, error_text(code))};
  }

  Status exchange(const Exchange& bytes) override {
    const int64_t longest =
        std::max(bytes.to < 0 ? 0 : bytes.out_bytes, bytes.from < 0 ? 0 : bytes.in_bytes);
    for (int64_t at = 0; at < longest; at += kMostMessageBytes) {
      MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      if (bytes.from >= 0 && at < bytes.in_bytes) {
        const auto count = static_cast<int>(std::min(kMostMessageBytes, bytes.in_bytes - at));
        MILLRACE_RETURN_IF_ERROR(check(MPI_Irecv(bytes.in + at, count, MPI_BYTE, bytes.from,
                                                 kDataTag, communicator_, &requests[0]),
                                       "MPI_Irecv"));
      }
      if (bytes.to >= 0 && at < bytes.out_bytes) {
        const auto count = static_cast<int>(std::min(kMostMessageBytes, bytes.out_bytes - at));
        MILLRACE_RETURN_IF_ERROR(check(MPI_Isend(bytes.out + at, count, MPI_BYTE, bytes.to,
                                                 kDataTag, communicator_, &requests[1]),
                                       "MPI_Isend"));
      }
      MILLRACE_RETURN_IF_ERROR(wait(requests, bytes));
    }
    return Ok();
  }

  // Starts all sends and the first receives before the first wait.
  Status exchange_segments(const Exchange& bytes, Arrived arrived) override {
    const int64_t in_bytes = bytes.from < 0 ? 0 : bytes.in_bytes;
    const int64_t segment = segment_of(in_bytes);
    const int64_t segments = (in_bytes + segment - 1) / segment;
    const int64_t ahead = std::min(segments, segment == kPieceBytes ? segments : kAhead);
    landing_.resize(static_cast<size_t>(ahead * segment));
    receives_.assign(static_cast<size_t>(ahead), MPI_REQUEST_NULL);
    const auto place = [&](int64_t i) { return landing_.data() + i % ahead * segment; };
    const auto length = [&](int64_t i) { return std::min(segment, in_bytes - i * segment); };
    const auto receive = [&](int64_t i) {
      return check(MPI_Irecv(place(i), static_cast<int>(length(i)), MPI_BYTE, bytes.from, kDataTag,
                             communicator_, &receives_[static_cast<size_t>(i % ahead)]),
                   "MPI_Irecv");
    };
    for (int64_t i = 0; i < ahead; ++i) MILLRACE_RETURN_IF_ERROR(receive(i));
    MILLRACE_RETURN_IF_ERROR(send_segments(bytes));
    for (int64_t i = 0; i < segments; ++i) {
      MILLRACE_RETURN_IF_ERROR(wait({&receives_[static_cast<size_t>(i % ahead)], 1}, bytes));
      MILLRACE_RETURN_IF_ERROR(arrived(i * segment, place(i), length(i)));
      if (i + ahead < segments) MILLRACE_RETURN_IF_ERROR(receive(i + ahead));
    }
    return wait(sends_, bytes);
  }

  Status send_segments(const Exchange& bytes) {
    sends_.clear();
    const int64_t out_bytes = bytes.to < 0 ? 0 : bytes.out_bytes;
    const int64_t segment = segment_of(out_bytes);
    for (int64_t at = 0; at < out_bytes; at += segment) {
      const auto length = static_cast<int>(std::min(segment, out_bytes - at));
      MILLRACE_RETURN_IF_ERROR(check(MPI_Isend(bytes.out + at, length, MPI_BYTE, bytes.to, kDataTag,
                                               communicator_, &sends_.emplace_back()),
                                     "MPI_Isend"));
    }
    return Ok();
  }

  Status wait(llvm::MutableArrayRef<MPI_Request> requests, const Exchange& bytes) {
    std::optional<PolledDeadline> deadline;
    for (int tests = 1;; ++tests) {
      int done = 0;
      MILLRACE_RETURN_IF_ERROR(check(MPI_Testall(static_cast<int>(requests.size()), requests.data(),
                                                 &done, MPI_STATUSES_IGNORE),
                                     "MPI_Testall"));
      if (done != 0) return Ok();
      if (tests % kTestsBetweenLooks != 0) continue;
      if (!deadline) deadline.emplace(std::chrono::milliseconds(timeout_ms()));
      if (deadline->has_passed()) return late(bytes);
    }
  }

  Status late(const Exchange& bytes) {
    const int partner = bytes.from >= 0 ? bytes.from : bytes.to;
    return call_roll(
        {StatusCode::kDistributed, fmt::format("rank {} of {} has waited {} ms for rank {} in call "
                                               "{}",
                                               rank(), size(), timeout_ms(), partner, calls())});
  }

  // Each rank that times out notifies all others; ranks that send nothing are the missing ones.
  Status call_roll(Status why) {
    std::vector<MPI_Request> sent(static_cast<size_t>(size()), MPI_REQUEST_NULL);
    std::vector<MPI_Request> received(sent);
    // Sends to a lost rank may never complete, so their buffer must outlive this call.
    static constexpr std::byte kPresent{1};
    std::vector<std::byte> in(static_cast<size_t>(size()));
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      const auto at = static_cast<size_t>(other);
      MPI_Irecv(&in[at], 1, MPI_BYTE, other, kRollTag, communicator_, &received[at]);
      MPI_Isend(&kPresent, 1, MPI_BYTE, other, kRollTag, communicator_, &sent[at]);
    }
    PolledDeadline deadline(kRollTime);
    std::vector<int> missing;
    do {
      missing.clear();
      for (int other = 0; other < size(); ++other) {
        int done = 0;
        if (other == rank()) continue;
        MPI_Test(&received[static_cast<size_t>(other)], &done, MPI_STATUS_IGNORE);
        if (done == 0) missing.push_back(other);
      }
    } while (!missing.empty() && !deadline.has_passed());
    for (MPI_Request& request : sent) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    for (MPI_Request& request : received) {
      if (request == MPI_REQUEST_NULL) continue;
      // Local: the wait returns whether the byte arrives or not, and `in` is not written to later.
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (missing.empty()) return why;
    return Status(StatusCode::kDistributed,
                  fmt::format("lost {} {}: no answer within {} ms after a failure",
                              missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
                              kRollTime.count()))
        .with_note(why.message());
  }

  StatusOr<std::unique_ptr<CollectiveGroup>> do_subgroup(llvm::ArrayRef<int> members,
                                                         int own_place) override {
    MPI_Group all{};
    MPI_Group some{};
    MPI_Comm communicator = MPI_COMM_NULL;
    MILLRACE_RETURN_IF_ERROR(check(MPI_Comm_group(communicator_, &all), "MPI_Comm_group"));
    int code = MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    // different ranks may make several groups at once; the first member is used as a tag
    if (code == MPI_SUCCESS)
      code = MPI_Comm_create_group(communicator_, some, members.front(), &communicator);
    MPI_Group_free(&all);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    MILLRACE_RETURN_IF_ERROR(check(code, "MPI_Comm_create_group"));
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    GroupSettings own = settings();
    own.rank = own_place;
    own.size = static_cast<int>(members.size());
    return std::unique_ptr<CollectiveGroup>(std::make_unique<MpiGroup>(own, communicator, false));
  }

  void do_abort(const Status& /*reason*/) override {}  // the others notice at their deadlines

  MPI_Comm communicator_;
  bool owns_mpi_;
  std::vector<std::byte> landing_;
  std::vector<MPI_Request> receives_;
  std::vector<MPI_Request> sends_;
};

// MPI loads components that look up its functions in the program. This module was loaded with local
// visibility, so the MPI library is made globally visible here.
void show_to_components() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

StatusOr<std::unique_ptr<CollectiveGroup>> open(const GroupSettings& settings) {
  int is_up = 0;
  MPI_Initialized(&is_up);
  if (is_up != 0)
    return Status(StatusCode::kDistributed, "MPI was already started in this process");
  show_to_components();
  int level = 0;
  // one thread calls at a time, but not always the main thread
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
    return Status(StatusCode::kDistributed, "MPI does not start");
  if (level < MPI_THREAD_SERIALIZED)
    return Status(StatusCode::kDistributed, "this MPI does not allow calls from several threads");
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  GroupSettings own = settings;
  MPI_Comm_rank(communicator, &own.rank);
  MPI_Comm_size(communicator, &own.size);
  return std::unique_ptr<CollectiveGroup>(std::make_unique<MpiGroup>(own, communicator, true));
}

constexpr MpiEngine kEngine{&open};

}  // namespace
}  // namespace millrace::executor

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::executor::kEngine;
  return millrace::build_stamp();
}
