#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/client/client.h"

namespace millrace::ps {

class Communicator;
class TrainerTables;

/// What one trainer sends and fetches in a step, combined into one message per server where the
/// program has barriers: gradients are kept until the send barrier, which carries them, and
/// parameters are fetched with the fetch barrier.
///
/// Some programs of synchronous servers have no barriers (transpiled with completely_not_async).
/// For them, barriers are inserted at each change from sending to receiving and back, and at the
/// end of a step that receives nothing after it has sent. Thread-safety: one thread at a time.
class TrainerLink {
 public:
  explicit TrainerLink(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  TrainerLink(const TrainerLink&) = delete;
  TrainerLink& operator=(const TrainerLink&) = delete;

  [[nodiscard]] Client& client() { return *client_; }
  /// The communicator that send ops use, or null: none. It must outlive the runs of the program.
  [[nodiscard]] Communicator* communicator() const { return communicator_; }
  void set_communicator(Communicator* communicator) { communicator_ = communicator; }

  /// The typed tables of the job, or null if it has none.
  [[nodiscard]] TrainerTables* tables() const { return tables_.get(); }
  void set_tables(std::shared_ptr<TrainerTables> tables) { tables_ = std::move(tables); }

  /// The user of the link makes a send barrier and a fetch barrier in every step, although its
  /// program has none: ops keep what they send in steps.
  void end_steps_by_barriers() { ends_steps_ = true; }
  [[nodiscard]] bool ends_steps() const { return ends_steps_; }

  /// A value to send to a server.
  struct Parcel {
    std::string endpoint;
    std::string name;  ///< on the server
    const Value* value = nullptr;
  };
  /// A value to fetch from a server. Memory that the target already has is filled in place where it
  /// fits.
  struct Want {
    std::string endpoint;
    std::string name;  ///< on the server
    Value* target = nullptr;
  };

  /// Sends now and waits until the servers have received everything.
  Status send(llvm::ArrayRef<Parcel> parcels);
  /// Keeps parcels for the send barrier; their values must not change until then.
  void keep(llvm::ArrayRef<Parcel> parcels);
  /// Sends the kept parcels, and reports to all servers that sending is complete.
  Status send_barrier(const std::vector<std::string>& endpoints);

  /// Fetches now. In synchronous mode, waits until the gradients that were sent are applied.
  /// \param any_phase  do not wait
  Status fetch(llvm::ArrayRef<Want> wants, bool any_phase);
  /// Keeps wants for the fetch barrier; their targets must stay valid until then.
  void keep(llvm::ArrayRef<Want> wants);
  /// Fetches the kept wants, and reports to all servers that fetching is complete.
  Status fetch_barrier(const std::vector<std::string>& endpoints);
  /// To be called after each step: without a receive, no barrier says yet that all is sent, and the
  /// servers would never apply it. Waits until they have applied it.
  Status finish_step();
  /// Drops what an interrupted step kept.
  void forget();

 private:
  /// What a program without barriers is currently doing.
  enum class Turn { kNone, kSending, kFetching };

  StatusOr<bool> lacks_barriers(const std::string& endpoint);
  using PackSend = Request (*)(std::vector<RequestItem> vars);
  using PackFetch = Request (*)(std::vector<std::string> names);
  /// Calls each server that gets a parcel, and those of `endpoints`.
  Status deliver(llvm::ArrayRef<Parcel> parcels, PackSend pack_call,
                 const std::vector<std::string>& endpoints);
  Status collect(llvm::ArrayRef<Want> wants, PackFetch pack_call,
                 const std::vector<std::string>& endpoints);

  std::shared_ptr<Client> client_;
  Communicator* communicator_ = nullptr;
  std::shared_ptr<TrainerTables> tables_;
  std::vector<Parcel> parcels_;
  std::vector<Want> wants_;
  Turn turn_ = Turn::kNone;
  bool ends_steps_ = false;
};

}  // namespace millrace::ps
