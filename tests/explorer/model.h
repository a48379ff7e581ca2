#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ps/client/decisions.h"
#include "ps/protocol/answers.h"
#include "ps/server/step_rules.h"
#include "ps/server/trainers.h"

/// A job of a synchronous cluster as a state that can be copied and compared: what servers and
/// trainers know, what is on the disks, and which calls are under way. What they decide is decided
/// by the product's code (ps/server/step_rules.h, ps/server/trainers.h, ps/client/decisions.h).
namespace millrace::explorer {

/// Rules that are left out, to see that the explorer notices.
enum class Mutation : uint8_t {
  kNone,
  kNoConfirmation,     ///< an elastic server applies a step that others may lack
  kNoIncarnation,      ///< calls of a process are accepted after another one has replaced it
  kWholeRecord,        ///< a snapshot records calls whose gradients are not in it
  kRepeatsCarriedOut,  ///< a repeat of a sequence number is carried out again
  kNotDurable,         ///< trainers continue before the durable snapshot is on the disk
  kNoSettling,         ///< a trainer continues on a server that others took back
  kEarlyReplacement,   ///< a replacement does not wait for the last step of the lost trainer
  kExactSnapshots,     ///< a server without a snapshot of the step does not go back further
  kOwnCount,           ///< a server decides about a lost trainer without the others
};

/// A job, and how many faults may happen at any moment.
struct Job {
  std::string name = {};
  int servers = 2;
  int trainers = 2;
  int steps = 2;
  bool elastic = false;
  int snapshot_every = 0;  ///< steps; 0: none
  bool durable = false;    ///< snapshots
  int crashes = 0;         ///< of servers, which are started again
  int restarts = 0;        ///< of the job: servers end with a last snapshot, trainers are killed
  int cuts = 0;            ///< requests or responses that are lost
  int late = 0;            ///< requests that arrive after their caller has given them up
  int silences = 0;        ///< a server hears nothing of a live trainer for too long
  int kills = 0;           ///< of trainers
  bool replaces = false;   ///< another process takes the place of a killed trainer
  bool may_end = false;    ///< trainers and servers may end with an error: too much has happened
  Mutation mutation = Mutation::kNone;
};

/// Trainers whose updates a step has, a bit each, by step. kWrong: an update of another step.
using History = std::vector<uint8_t>;
inline constexpr uint8_t kWrong = 0x80;

/// A snapshot on a disk.
struct Snapshot {
  int64_t applied = 0;
  ps::CallsRecord calls;
  History history;
};

/// A server and its disk.
struct ServerState {
  enum class Life : uint8_t { kUp, kDown, kEnded, kFailed };
  ServerState(const Job& job, int its_number)
      : number(its_number),
        trainers(job.trainers, "", job.elastic, {}),
        slots(static_cast<size_t>(job.trainers), -1) {}

  int number;
  Life life = Life::kUp;
  ps::Trainers trainers;
  ps::StepCounts counts;
  uint64_t epoch = 0;
  std::vector<int64_t> slots;  ///< by trainer: the step of the gradients that are here; -1: none
  History history;             ///< what the parameters are made of
  bool is_due = false;         ///< a snapshot is to be copied
  std::optional<Snapshot> writing;
  std::vector<Snapshot> disk;  ///< oldest first
  uint64_t term = 1;
};

/// A call that may be repeated, as it travels.
struct Message {
  ps::Method method = ps::Method::kSendBarrier;
  int trainer = 0;
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  int64_t gradients = -1;  ///< the step that they are of
  bool everywhere = false;
  bool stays = false;
};

/// What a server answers.
struct Answer {
  enum class Kind : uint8_t { kWaits, kOk, kRefused, kFatal };
  Kind kind = Kind::kOk;
  uint64_t epoch = 0;
  std::string why = {};
  History values = {};
  ps::protocol::HelloAnswer hello = {};
  ps::protocol::LossAnswer loss = {};
};

/// A trainer's call to one server, of those that it makes in parallel.
struct Lane {
  enum class State : uint8_t { kCall, kGreet, kFetchAgain, kSendAgain, kOk, kFailed };
  State state = State::kOk;
  uint64_t sequence = 0;
  bool everywhere = false;
  uint64_t greeted = 0;  ///< the run that it sends its last gradients to again
  int errors = 0;        ///< answers in a row that refuse the call
};

/// What a trainer knows about a server; the members of ps::Client.
struct View {
  uint64_t epoch = 0;
  int64_t sent = 0;
  int64_t fetched = 0;
  int64_t last_sent = -1;  ///< the step of the gradients that it still has
  uint64_t sequence = 0;
  std::set<uint64_t> pending;
  uint64_t recovers = 0;  ///< the run for which it has the next two numbers
  uint64_t fetch_sequence = 0;
  uint64_t send_sequence = 0;
  History values = {};
};

/// A trainer's process.
struct TrainerState {
  enum class Life : uint8_t { kRuns, kDone, kKilled, kEnded };
  enum class Phase : uint8_t { kSettle, kFirstFetch, kSend, kFetch, kStay, kLeave };
  Life life = Life::kRuns;
  Phase phase = Phase::kSettle;
  uint64_t incarnation = 0;
  int64_t step = 0;
  int64_t first = 0;  ///< the step from which all updates must be there
  std::vector<Lane> lanes;
  std::vector<View> views;
  bool must_settle = false;
  bool has_joined = false;  ///< it has settled once
  bool is_early = false;    ///< it sends the servers its step while calls still wait
  // while it settles
  bool again = false;
  int64_t ahead = 2;
  size_t stage = 0;  ///< hello to each server, then go-to to each
  std::vector<ps::protocol::HelloAnswer> answers;
  std::vector<uint64_t> epochs;
  // while it agrees with the servers on a lost trainer
  int loss_stage = -1;  ///< -1: it does not; the question to each server, then the decision
  ps::protocol::Loss loss;
  std::vector<ps::protocol::LossAnswer> loss_answers;
  std::vector<uint64_t> loss_epochs;
};

/// The whole job.
struct State {
  explicit State(const Job& job);
  std::vector<ServerState> servers;
  std::vector<TrainerState> trainers;
  std::vector<std::pair<int, Message>> late;                                    ///< server and call
  int crashes = 0, restarts = 0, cuts = 0, lates = 0, silences = 0, kills = 0;  // left
  uint64_t incarnations = 0;
  uint8_t given_up = 0;  ///< trainers that a server took for lost although they lived
  std::string violation;
};

/// Something that happens.
struct Event {
  enum class Kind : uint8_t {
    kCall,         ///< the call of a lane arrives and is answered, or continues to wait
    kSettle,       ///< a trainer asks the next server where it is, or sends it go-to
    kAskLoss,      ///< a trainer that knows of a suspect asks, or tells, the next server
    kApply,        ///< a server applies the step
    kCopy,         ///< it copies its state for a snapshot
    kWritten,      ///< the snapshot is on the disk
    kEnd,          ///< all trainers are gone
    kStart,        ///< a server that has crashed starts again
    kTimeOut,      ///< a server notices that a killed trainer is silent
    kDecideAlone,  ///< no trainer is left that could ask about a suspect
    // faults
    kCrash,
    kLoseRequest,
    kLoseAnswer,
    kDelay,
    kArrives,  ///< a call that was given up arrives
    kSilence,
    kKill,
    kReplace,
    kRestart,  ///< all processes end, and are started again
  };
  Kind kind = Kind::kCall;
  int a = 0;  ///< trainer, or the server of an event of servers
  int b = 0;  ///< server of a lane; trainer that a server takes for lost
  [[nodiscard]] bool is_fault() const { return kind >= Kind::kCrash; }
};

/// All events that could happen to some state of a job.
std::vector<Event> all_events(const Job& job);
/// False for most events that cannot happen in this state; cheaper than to try them.
bool may_happen(const Job& job, const Event& event, const State& state);
/// Carries out an event. \returns false if it cannot happen in this state; then the state has no
/// meaning any more
bool happen(const Job& job, const Event& event, State& state);
/// True if all processes have ended.
bool is_final(const State& state);
/// Equal states have equal texts.
std::string text_of(const State& state);
std::string describe(const Event& event);

// ---- servers: model_server.cc

Answer handle(const Job& job, ServerState& server, const Message& message);
Answer hello(const Job& job, ServerState& server, const TrainerState& trainer, int id);
Answer go_to(const Job& job, ServerState& server, const ps::Request& request,
             const ps::protocol::GoTo& message);
Answer settle_loss(const Job& job, ServerState& server, const ps::Request& request,
                   const ps::protocol::Loss& message);
bool apply(const Job& job, ServerState& server, State& state);
bool copy_snapshot(const Job& job, ServerState& server);
bool written(ServerState& server);
/// The snapshot of a server that is ended.
void save_last(ServerState& server);
void start(const Job& job, ServerState& server);
/// Ends the suspects of a server that no trainer could ask about. \returns false if there is none
bool decide_alone(const Job& job, ServerState& server);

}  // namespace millrace::explorer
