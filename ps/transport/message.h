#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/tensor/value.h"

namespace millrace::ps {

/// What a caller requests from a server. The arguments and the answer of each method are described
/// with its message, in ps/protocol/messages.h.
enum class Method : uint8_t {
  kHello = 1,     ///< protocol::Hello
  kSend,          ///< protocol::Send
  kGet,           ///< protocol::Get
  kGetNoBarrier,  ///< protocol::GetNow
  kPrefetch,      ///< protocol::Prefetch
  kSendBarrier,   ///< protocol::SendBarrier
  kFetchBarrier,  ///< protocol::FetchBarrier
  kComplete,      ///< protocol::Complete
  kCheckpoint,    ///< protocol::Checkpoint
  kCount,         ///< protocol::Count
  kRun,           ///< protocol::Run
  kPull,          ///< protocol::Pull
  kPush,          ///< protocol::Push
  kTableBarrier,  ///< protocol::Barrier
  kWatch,         ///< protocol::Watch
  kStop,          ///< protocol::Stop
  kGoTo,          ///< protocol::GoTo
  kLoss,          ///< protocol::Loss
};

/// "send", "get-no-barrier", ... for messages and logs.
std::string_view method_name(Method method);

/// A var in a request. The caller owns the memory and keeps it for the duration of the call.
struct RequestItem {
  std::string name;
  const Value* value = nullptr;  ///< null where the method needs only the name
  /// The same value if the receiver may move it, as for values received from the network; else
  /// null.
  Value* movable = nullptr;
};

/// Identifies the caller; the same in all calls of a process.
struct Caller {
  std::string job;  ///< distinguishes jobs that share a network
  int trainer = 0;
  uint64_t incarnation = 0;  ///< distinguishes a trainer from its replacement
};

/// The envelope of one call. `number`, `text` and the items hold the message of the method; only
/// ps/protocol/pack.h reads and writes them.
struct Request {
  Method method = Method::kHello;
  Caller caller;
  uint64_t epoch = 0;  ///< expected epoch of the server; 0: any
  int64_t step = -1;   ///< of the trainer; negative: none
  /// Number of this call from this trainer to this server, from 1; a repeat has the same number.
  /// 0: a read, which needs none.
  uint64_t sequence = 0;
  int64_t number = 0;
  std::string text;
  std::vector<RequestItem> items;
};

/// Set in `sequence` of a call without a number, so that traces can identify the call. Servers
/// treat such a sequence as 0.
inline constexpr uint64_t kTraceBit = uint64_t{1} << 63U;
/// True if the server must recognize a repeat of the call.
inline bool is_numbered(const Request& request) {
  return request.sequence != 0 && (request.sequence & kTraceBit) == 0;
}

/// Receives a server's response. Values are copied before put() returns, so the server needs to
/// hold its locks only during put().
class ReplySink {
 public:
  ReplySink() = default;
  ReplySink(const ReplySink&) = delete;
  ReplySink& operator=(const ReplySink&) = delete;
  virtual ~ReplySink() = default;

  /// Adds the next value of the reply. Errors: kResource; kInvalidArgument for a value that cannot
  /// be sent (step scopes).
  virtual Status put(std::string_view name, const Value& value) = 0;
  /// Returns memory for a tensor as the next value of the reply. The caller must fill it before its
  /// next call of this object; this saves a copy for values that are assembled from parts. Errors:
  /// kResource; kInvalidArgument for invalid dims.
  virtual StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                        llvm::ArrayRef<int64_t> dims) = 0;
  virtual void set_epoch(uint64_t epoch) = 0;
  virtual void set_number(int64_t number) = 0;
  virtual void set_text(std::string text) = 0;
};

/// The envelope of a response; `number` and `text` hold the answer (ps/protocol/answers.h). Values
/// that have memory of the right size are filled in place.
struct Reply {
  uint64_t epoch = 0;
  int64_t number = 0;
  std::string text;
  std::vector<std::string> names;
  std::vector<Value> values;  ///< as many as names
};

}  // namespace millrace::ps
