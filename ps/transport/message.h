#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/tensor/value.h"

namespace millrace::ps {

/// What a caller asks of a server. One call may carry several vars.
enum class Method : uint8_t {
  kHello = 1,     ///< opens a trainer's dealings with a server; the reply tells the server's epoch
  kSend,          ///< vars into the server
  kGet,           ///< vars from the server; in sync mode waits for the phase of gets
  kGetNoBarrier,  ///< vars from the server, in whatever phase it is
  kPrefetch,      ///< rows of a table: item k holds int64 ids, its reply their rows
  kSendBarrier,   ///< all sends of this step are done
  kFetchBarrier,  ///< all gets of this step are done
  kComplete,      ///< the trainer leaves
  kCheckpoint,    ///< run the checkpoint block, or save the table `text`, to the folder of item 0
  kCount,         ///< adds `number` steps of this trainer to the learning-rate counter
  kRun,           ///< run the block that is registered for item 0 and reply with its output
  kPull,          ///< rows or values of table `number`
  kPush,          ///< gradients or deltas into table `number`
  kTableBarrier,  ///< arrival at barrier `text`
  kWatch,         ///< what the server knows about itself, as json in the reply's text
  kStop,          ///< the server ends as on SIGTERM
  kGoTo,          ///< a synchronous trainer goes on at step `number`; a server that is further goes
                  ///< back to its snapshot of that step. text: its calls up to that number are over
};

/// "send", "get-no-barrier", ... for messages and logs.
std::string_view method_name(Method method);

/// A var in a request. The memory belongs to the caller for as long as the call takes.
struct RequestItem {
  std::string name;
  const Value* value = nullptr;  ///< null where the method needs only the name
  /// The same value where the receiver may take it away, as what came over a wire; else null.
  Value* movable = nullptr;
};

/// Who calls; the same in all calls of a process.
struct Caller {
  std::string job;  ///< jobs that share a network must not mix
  int trainer = 0;
  uint64_t incarnation = 0;  ///< differs for a replacement of the trainer
};

/// One call.
struct Request {
  Method method = Method::kHello;
  Caller caller;
  uint64_t epoch = 0;  ///< of the server that is meant; 0: whichever answers
  int64_t step = -1;   ///< of the trainer; negative where it has none
  uint64_t sequence =
      0;               ///< of this trainer at this server, from 1; a repeat has the same. 0: reads
  int64_t number = 0;  ///< argument of some methods
  std::string text;    ///< argument of some methods
  std::vector<RequestItem> items;
};

/// Set in `sequence` of a call that has no number, so that a trace can tell who made it; whoever
/// answers takes it for 0.
inline constexpr uint64_t kTraceBit = uint64_t{1} << 63U;
/// True if a repeat of the call is to be known.
inline bool is_numbered(const Request& request) {
  return request.sequence != 0 && (request.sequence & kTraceBit) == 0;
}

/// Where a server puts its answer. Values are copied out before put() returns, so the server may
/// hold its locks just that long.
class ReplySink {
 public:
  ReplySink() = default;
  ReplySink(const ReplySink&) = delete;
  ReplySink& operator=(const ReplySink&) = delete;
  virtual ~ReplySink() = default;

  /// The next value of the reply. Errors: kResource; kInvalidArgument for a value that cannot
  /// travel (step scopes).
  virtual Status put(std::string_view name, const Value& value) = 0;
  /// Room for a tensor as the next value of the reply. Who asked fills it before the next call of
  /// this object; so what is put together from pieces is not copied once more. Errors: kResource;
  /// kInvalidArgument for dims that are none.
  virtual StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                        llvm::ArrayRef<int64_t> dims) = 0;
  virtual void set_epoch(uint64_t epoch) = 0;
  virtual void set_number(int64_t number) = 0;
  virtual void set_text(std::string text) = 0;
};

/// What a caller gets. Give it values with memory of the right size and they are filled in place.
struct Reply {
  uint64_t epoch = 0;
  int64_t number = 0;
  std::string text;
  std::vector<std::string> names;
  std::vector<Value> values;  ///< as many as names
};

}  // namespace millrace::ps
