#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ps/protocol/kinds.h"
#include "ps/slices/plan_facts.h"
#include "ps/transport/message.h"

/// What trainers request from servers: one type for each method, packed into a Request by
/// ps/protocol/pack.h. Answers are in ps/protocol/answers.h.
///
/// Any call can fail with kDistributed: the server cannot be reached, does not respond by the
/// deadline, is in another epoch, or does not know the trainer; and with kInvalidArgument for a
/// malformed message. The errors below come in addition.
///
/// A call whose connection was lost is repeated. "Carried out once": the call has a sequence
/// number, by which the server recognizes the repeat. "Repeated": it has none, and carrying it out
/// again does no harm.
namespace millrace::ps::protocol {

/// Connects a trainer, or shows that it is alive. Answer: HelloAnswer. Repeated, until the deadline
/// at the start of a job. Errors: kDistributed for another job or another distribution of a
/// program, or if another process has the trainer's id; kInvalidArgument for an id out of range.
struct Hello {
  static constexpr Method kMethod = Method::kHello;
  bool has_fetched = false;  ///< the trainer has all parameters that it needs for its step
  int64_t sent = 0;          ///< how many of its send barriers the server has answered
  uint64_t settled = 0;      ///< the trainer repeats no call up to this number
  PlanFacts plan = {};       ///< what the trainer knows about the server; none in a heartbeat
};

/// Sends vars. Answer: none. Carried out once. Errors: kNotFound, kInvalidArgument naming the var.
struct Send {
  static constexpr Method kMethod = Method::kSend;
  SendKind kind = SendKind::kGradients;
  std::vector<RequestItem> vars;
};

/// Fetches vars; in sync mode waits until the gradients of the trainer's step are applied. Answer:
/// one value for each name. Repeated; for kChangedRows carried out once, and a repeat returns the
/// same rows. Errors: kNotFound naming the var; kExecution for a var without a value;
/// kInvalidArgument for changed rows of a synchronous server, or of a var that is no sparse table.
struct Get {
  static constexpr Method kMethod = Method::kGet;
  GetKind kind = GetKind::kValues;
  std::vector<std::string> names;
  bool sent_everywhere = false;  ///< as in FetchBarrier
};

/// Fetches vars in any phase, without waiting. Answer and errors: as Get. Repeated.
struct GetNow {
  static constexpr Method kMethod = Method::kGetNoBarrier;
  std::vector<std::string> names;
};

/// Looks up rows of a table. Answer: one tensor of rows for each of `ids`. Repeated. Errors:
/// kNotFound for a table or block that the server does not have; kInvalidArgument for ids that are
/// not in the table.
struct Prefetch {
  static constexpr Method kMethod = Method::kPrefetch;
  /// The var with the rows; none: each of `ids` names a var with a block that looks it up.
  std::optional<std::string> table;
  std::vector<RequestItem> ids;  ///< int64
};

/// The trainer has sent all gradients of its step; `vars` are the last of them. The values must
/// stay until the next fetch barrier is answered: a client sends them again to a server that lost
/// them. Answer: none. Carried out once. Errors: as Send; kExecution naming gradients that are
/// missing.
struct SendBarrier {
  static constexpr Method kMethod = Method::kSendBarrier;
  std::vector<RequestItem> vars;
};

/// Fetches vars as Get does; the trainer then has all parameters of its next step. Answer: one
/// value for each name. Carried out once, and a repeat returns the same values. Errors: as Get.
struct FetchBarrier {
  static constexpr Method kMethod = Method::kFetchBarrier;
  std::vector<std::string> names;
  /// All servers have answered the send barriers of this trainer. A server of an elastic job
  /// applies a step only when it knows that of all trainers in the step.
  bool sent_everywhere = false;
};

/// The trainer makes no more steps. Answer: none. Repeated.
struct Complete {
  static constexpr Method kMethod = Method::kComplete;
  bool stays = false;            ///< the trainer stays connected, and the server does not end
  bool waits = true;             ///< with `stays`: answer when all trainers are done
  bool sent_everywhere = false;  ///< as in FetchBarrier; what was not sent everywhere is dropped
};

/// Saves a var with rows as file <table>_<server> of a folder. Answer: SavedFile. Carried out once,
/// and a repeat reports the same file. Errors: kInvalidArgument if the server may not write files,
/// or saves no table; kNotFound naming the var; kIo.
struct SaveVar {
  std::optional<std::string> table;  ///< none: the var that the server's checkpoint block saves
  std::string folder;                ///< below the folder that the server may write to
  RowsToSave rows = RowsToSave::kAll;
};

/// Saves a typed table. Answer: SavedFile. Repeats and errors: as SaveVar; kUnimplemented for a
/// server without typed tables or files of them.
struct SaveTable {
  int32_t table = 0;
  std::string folder;     ///< below the folder that the server may write to
  int32_t mode = 0;       ///< the original's number of a save (Accessor::is_saved())
  bool replaces = false;  ///< an existing folder is replaced
};

/// Loads a typed table. Answer: none. Carried out once. Errors: as SaveTable; kNotFound,
/// kInvalidData with the path; kUnimplemented for geo tables.
struct LoadTable {
  int32_t table = 0;
  std::string folder;  ///< below the folder that the server may read
};

/// Asks how many dense tables the server has loaded since it started, and whether trainers have set
/// the others. Answer: LoadedTables.
/// Repeats and errors: as SaveTable.
struct CountLoaded {};

/// Any of the requests about files.
struct Checkpoint {
  static constexpr Method kMethod = Method::kCheckpoint;
  std::variant<SaveVar, SaveTable, LoadTable, CountLoaded> what;
};

/// Adds steps of this trainer to the counter of a learning rate. Answer: none. Carried out once.
/// Errors: kInvalidArgument for a synchronous server, or one that computes no learning rate.
struct Count {
  static constexpr Method kMethod = Method::kCount;
  std::string counter;
  int64_t steps = 0;
};

/// Runs the block of a message. Answer: one value for each output. Carried out once, and a repeat
/// returns the same values, or the same error of the block. Errors: kNotFound for an unknown
/// message or var; those of the block; kExecution for a repeat whose values are no longer known.
struct Run {
  static constexpr Method kMethod = Method::kRun;
  std::string message;
  std::vector<RequestItem> inputs;
  std::vector<std::string> outputs;
};

/// Pulls rows or values of a typed table. Answer: one value. Repeated; kCounted and kChangedRows
/// are carried out once. Errors: kUnimplemented for a server without typed tables; kNotFound for an
/// unknown table; kInvalidArgument with expected and found for a wrong argument.
struct Pull {
  static constexpr Method kMethod = Method::kPull;
  int64_t table = 0;
  PullKind kind = PullKind::kPlain;
  std::vector<RequestItem> args;
};

/// Pushes to a typed table. Answer: none. Carried out once. Errors: as Pull.
struct Push {
  static constexpr Method kMethod = Method::kPush;
  int64_t table = 0;
  PushKind kind = PushKind::kUpdate;
  std::vector<RequestItem> args;
};

/// Arrives at a barrier of the server and waits for the other trainers.
struct ServerBarrier {
  CommBarrier kind = CommBarrier::kSend;
};

/// Arrives at a phase of a barrier of the server's typed tables and waits for the other trainers.
/// A server without typed tables uses its own barrier of this kind.
struct TableBarrier {
  CommBarrier kind = CommBarrier::kSend;
  int64_t phase = 1;  ///< from 1
};

/// The trainer no longer takes part in barriers of typed tables. Errors: kUnimplemented for a
/// server without typed tables.
struct LeaveBarriers {};

/// Any of the requests about barriers. Answer: none. Carried out once. Errors: kDistributed at the
/// deadline, naming the missing trainers.
struct Barrier {
  static constexpr Method kMethod = Method::kTableBarrier;
  std::variant<ServerBarrier, TableBarrier, LeaveBarriers> what;
};

/// Asks for the status of a server; the caller need not be a trainer. Answer: WatchAnswer.
/// Repeated.
struct Watch {
  static constexpr Method kMethod = Method::kWatch;
};

/// Ends the server as SIGTERM does; the caller need not be a trainer. Answer: none. Repeated.
struct Stop {
  static constexpr Method kMethod = Method::kStop;
};

/// A trainer of a synchronous job continues at a step; a server at a later step goes back to its
/// snapshot of that step, once for each run of the server that the trainer names as its reason.
/// Answer: the server's epoch, which changes when it goes back. Repeated, after a new hello.
/// Errors: kNotFound without such a snapshot; kInvalidArgument for an asynchronous server, without
/// a reason or for one that had this effect before, or if a trainer has left after that step;
/// kDistributed if a trainer that replaces another would start at a step that is already applied.
struct GoTo {
  static constexpr Method kMethod = Method::kGoTo;
  int64_t step = 0;
  uint64_t settled = 0;       ///< the trainer repeats no call up to this number
  std::string oldest = {};    ///< endpoint of the server that is at the step
  uint64_t oldest_epoch = 0;  ///< of that server
};

/// Agrees with all servers of an elastic synchronous job on the last step of a trainer that one of
/// them has lost (docs/reliability.md). Without `steps`: the server stops serving that trainer.
/// Answer: LossAnswer. With `steps`: the job continues without it. Answer: none. Repeated. Errors:
/// kInvalidArgument for another kind of server and for the caller itself; kDistributed naming
/// server, trainer and step if the server has applied other steps, which ends the server.
struct Loss {
  static constexpr Method kMethod = Method::kLoss;
  int32_t trainer = 0;
  uint64_t incarnation = 0;
  /// The trainer takes part in the steps before this one; -1: it has begun none.
  std::optional<int64_t> steps = {};
};

}  // namespace millrace::ps::protocol
