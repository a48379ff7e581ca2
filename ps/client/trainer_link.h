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

/// What one trainer sends and fetches in a step, put together into one message a server where the
/// program has barriers: gradients wait until the send barrier, which takes them along, and
/// parameters come with the fetch barrier.
///
/// Some programs of synchronous servers have no barriers (transpiled with completely_not_async);
/// they get them at the change from sending to receiving and back. Thread-safety: one thread at a
/// time.
class TrainerLink {
 public:
  explicit TrainerLink(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  TrainerLink(const TrainerLink&) = delete;
  TrainerLink& operator=(const TrainerLink&) = delete;

  [[nodiscard]] Client& client() { return *client_; }
  /// What the communicator sends, or null: nothing. It must outlive the runs of the program.
  [[nodiscard]] Communicator* communicator() const { return communicator_; }
  void set_communicator(Communicator* communicator) { communicator_ = communicator; }

  /// The typed tables of the job, or null: it has none.
  [[nodiscard]] TrainerTables* tables() const { return tables_.get(); }
  void set_tables(std::shared_ptr<TrainerTables> tables) { tables_ = std::move(tables); }

  /// A value on its way to a server.
  struct Parcel {
    std::string endpoint;
    std::string name;  ///< on the server
    const Value* value = nullptr;
  };
  /// A value that is wanted from a server. What the target has is filled in place where it fits.
  struct Want {
    std::string endpoint;
    std::string name;  ///< on the server
    Value* target = nullptr;
  };

  /// Sends now and waits until the servers have everything.
  Status send(llvm::ArrayRef<Parcel> parcels);
  /// Keeps them for the send barrier; values must stay as they are until then.
  void keep(llvm::ArrayRef<Parcel> parcels);
  /// Sends what was kept, and says to all servers that it was all.
  Status send_barrier(const std::vector<std::string>& endpoints);

  /// Fetches now. In synchronous mode waits until what was sent is applied.
  /// \param any_phase  waits for nothing
  Status fetch(llvm::ArrayRef<Want> wants, bool any_phase);
  /// Keeps them for the fetch barrier; targets must stay where they are until then.
  void keep(llvm::ArrayRef<Want> wants);
  /// Fetches what was kept, and says to all servers that it was all.
  Status fetch_barrier(const std::vector<std::string>& endpoints);
  /// Drops what an interrupted step has kept.
  void forget();

 private:
  /// What programs without barriers do at present.
  enum class Turn { kNone, kSending, kFetching };

  StatusOr<bool> lacks_barriers(const std::string& endpoint);
  Status deliver(llvm::ArrayRef<Parcel> parcels, Method method,
                 const std::vector<std::string>& endpoints);
  Status collect(llvm::ArrayRef<Want> wants, Method method,
                 const std::vector<std::string>& endpoints);

  std::shared_ptr<Client> client_;
  Communicator* communicator_ = nullptr;
  std::shared_ptr<TrainerTables> tables_;
  std::vector<Parcel> parcels_;
  std::vector<Want> wants_;
  Turn turn_ = Turn::kNone;
};

}  // namespace millrace::ps
