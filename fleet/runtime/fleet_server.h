#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/runtime.h"
#include "fleet/runtime/described_tables.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/metrics/metrics.h"
#include "ps/server/service.h"
#include "ps/table/table_folder.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// What a server of a fleet job is made from.
struct ServerSetup {
  std::string description;  ///< ps_desc.txt of this server
  int workers = 1;          ///< that complete before the server ends
  int server = 0;           ///< own place among the servers
  int servers = 1;
  ServerTableOptions tables;
  ps::ServerOptions service;  ///< job, deadlines, ...; its `tables` is set here
};

/// A server of a fleet job: the tables of its description, behind the same service as other
/// parameter servers have, which watches over the workers. It serves until every worker has
/// completed. In contrast to the original's it ends by itself.
class FleetServer {
 public:
  /// Errors: those of make_described_tables(); kUnimplemented for snapshots.
  static StatusOr<std::unique_ptr<FleetServer>> create(ServerSetup setup);
  FleetServer(const FleetServer&) = delete;
  FleetServer& operator=(const FleetServer&) = delete;

  /// Loads tables that a job has saved, with the state of their optimizers (save_persistables());
  /// before serve(). Where the dense parameters are among them, workers begin with those.
  /// \param folder  of the files; of as many servers as this job has, or of another number
  /// \param tables  names of embeddings; none: all tables of the job, the dense ones, too
  /// Errors: kNotFound for a folder without files of a table; kInvalidArgument for a name that is
  /// no sparse table, with those that are; those of ps::load_table().
  Status load(const std::string& folder, const std::vector<std::string>& tables = {});
  /// Serves at an endpoint until all workers have completed or stop() is called.
  /// \param on_ready  is told where it listens; may be empty
  /// Errors: those of listening; kDistributed for a worker that is lost or never came.
  Status serve(ps::Transport& transport, const std::string& endpoint,
               const std::function<void(const std::string&)>& on_ready = {});
  /// Ends serve(). Thread-safety: any thread.
  void stop();
  /// Lets serve() write numbers about the server there; metrics outlives it.
  void publish_to(ps::Metrics& metrics) { metrics_ = &metrics; }
  [[nodiscard]] ps::TableHandler& tables() { return *tables_; }

 private:
  FleetServer() = default;
  Status answer_files(const ps::Request& request, bool repeat, ps::ReplySink& reply);
  Status save_table(int id, const std::string& folder, int mode, Replace replace);
  Status load_table(int id, const std::string& folder);
  [[nodiscard]] Status check_manifest(int id, const std::string& folder) const;
  [[nodiscard]] ps::TableShare share_of(int id) const;

  ServerSetup setup_;
  std::unique_ptr<ps::TableHandler> tables_;
  std::map<int, ps::TypedTable> sparse_;  ///< by number
  std::atomic<int64_t> loaded_ = 0;       ///< dense tables
  std::shared_ptr<executor::Runtime> runtime_;
  std::unique_ptr<Program> program_;  ///< one listen_and_serv, whose block is empty
  Scope scope_;
  ps::Metrics* metrics_ = nullptr;
  std::mutex mutex_;
  ps::Service* running_ = nullptr;  ///< guarded by mutex_
  bool stopped_ = false;            ///< likewise
};

}  // namespace millrace::fleet
