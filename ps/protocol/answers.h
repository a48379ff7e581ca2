#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/params_manifest.h"
#include "ps/protocol/kinds.h"
#include "ps/transport/message.h"

/// Answers of servers that are more than values. A server puts an answer into a ReplySink; the
/// trainer reads it from the Reply. Thread-safety: that of the sink; the rest is pure.
namespace millrace::ps::protocol {

/// Answer to Hello.
struct HelloAnswer {
  enum class Standing {
    kContinues,   ///< the trainer takes part in the server's steps
    kJoins,       ///< it replaces a lost one, from a later step on
    kMustGoBack,  ///< other trainers went back to an older step, and this one must do so, too
  };
  ServerMode mode = ServerMode::kSync;
  int64_t sent = 0;     ///< send barriers of this trainer that the server has carried out
  int64_t applied = 0;  ///< steps that the server has applied; 0 if it is not synchronous
  Standing standing = Standing::kContinues;
  /// A trainer that this server has lost; the others are to agree on its last step (Loss).
  struct Suspect {
    int trainer = 0;
    uint64_t incarnation = 0;
  };
  std::vector<Suspect> suspects = {};
};
void put_answer(const HelloAnswer& answer, ReplySink& reply);
/// Errors: kInvalidData with the text for a malformed answer.
StatusOr<HelloAnswer> hello_answer(const Reply& reply);

/// Answer to SaveVar and SaveTable: the file that the server wrote on its disk, with its size and
/// checksum. The name is relative to the folder that the server may write to; `vars` is empty.
using SavedFile = io::ParamsManifest::File;
void put_answer(const SavedFile& answer, ReplySink& reply);
/// \param server  names the server in the message
/// Errors: kDistributed naming the server for a malformed answer.
StatusOr<SavedFile> saved_file(const Reply& reply, std::string_view server);

/// Answer to CountLoaded.
struct LoadedTables {
  int64_t count = 0;           ///< dense tables that the server has loaded since it started
  bool ready = false;          ///< its tables have the values of a job (TableHandler::is_ready())
  bool restored = false;       ///< it has started from a snapshot
  int64_t snapshot_every = 0;  ///< steps between its snapshots; 0: it takes none by steps
};
void put_answer(const LoadedTables& answer, ReplySink& reply);
/// Errors: kInvalidData for a negative number and an unknown word.
StatusOr<LoadedTables> loaded_tables(const Reply& reply);

/// Answer to Loss without `steps`.
struct LossAnswer {
  /// The server has applied no step from this one on with the trainer; -1: it has applied none.
  int64_t steps = -1;
  bool decided = false;  ///< the servers agreed on `steps` before
};
void put_answer(const LossAnswer& answer, ReplySink& reply);
/// Errors: kInvalidData for a malformed answer.
StatusOr<LossAnswer> loss_answer(const Reply& reply);

/// Answer to Watch.
struct WatchAnswer {
  std::string json;  ///< the server's status, an object
};
void put_answer(WatchAnswer answer, ReplySink& reply);
WatchAnswer watch_answer(Reply reply);

}  // namespace millrace::ps::protocol
