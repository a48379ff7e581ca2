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
#include "ps/table/table_handler.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// Settings of a server of a fleet job.
struct ServerSetup {
  std::string description;  ///< ps_desc.txt of this server
  int workers = 1;          ///< the server ends when all of them have completed
  int server = 0;           ///< index of this server
  int servers = 1;
  ServerTableOptions tables;
  ps::ServerOptions service;  ///< job, deadlines, ...; `tables` is set by FleetServer
};

/// What servers cannot do in a job whose workers keep the dense parameters: continue without one of
/// the workers, and take snapshots of which workers have no dense parameters, which are those
/// by time, and all of asynchronous jobs. Errors: kUnimplemented naming the setting;
/// kInvalidArgument for snapshots without snapshot_every.
Status check_hybrid_service(const ps::ServerOptions& service, bool is_sync);

/// A server of a fleet job: serves the tables of its description with ps::Service, which also
/// detects lost workers and takes snapshots. It serves until every worker has completed. Unlike the
/// original's, it then ends on its own.
class FleetServer final : private ps::TableFiles {
 public:
  /// Errors: those of make_described_tables().
  static StatusOr<std::unique_ptr<FleetServer>> create(ServerSetup setup);
  FleetServer(const FleetServer&) = delete;
  FleetServer& operator=(const FleetServer&) = delete;

  /// Loads tables that a job has saved, with the state of their optimizers (save_persistables()).
  /// Call it before serve(). If dense parameters are loaded, workers start with them.
  /// \param folder  folder with the files, saved by any number of servers
  /// \param tables  names of embeddings; empty: all tables of the job, including dense ones
  /// Errors: kNotFound for a folder without files of a table; kInvalidArgument for a name that is
  /// not a sparse table, listing those that are; those of ps::load_table().
  Status load(const std::string& folder, const std::vector<std::string>& tables = {});
  /// Serves at an endpoint until all workers have completed or stop() is called.
  /// \param on_ready  called with the endpoint on which it listens; may be empty
  /// Errors: those of listening; kDistributed for a worker that is lost or never connected.
  Status serve(ps::Transport& transport, const std::string& endpoint,
               const std::function<void(const std::string&)>& on_ready = {});
  /// Ends serve(). Thread-safety: any thread.
  void stop();
  /// Sets where serve() writes metrics of the server; `metrics` must outlive it.
  void publish_to(ps::Metrics& metrics) { metrics_ = &metrics; }
  [[nodiscard]] ps::TableHandler& tables() { return *tables_; }

 private:
  FleetServer() = default;
  /// Requests of workers name folders relative to the allowed one.
  StatusOr<ps::protocol::SavedFile> save(const ps::protocol::SaveTable& what, bool repeat) override;
  Status load(const ps::protocol::LoadTable& what, bool repeat) override;
  [[nodiscard]] int64_t loaded() const override { return loaded_; }
  [[nodiscard]] Status check_folder_allowed(int id, const char* action) const;
  Status save_table(int id, const std::string& folder, int mode, Replace replace);
  Status load_table(int id, const std::string& folder);
  [[nodiscard]] Status check_manifest(int id, const std::string& folder) const;
  [[nodiscard]] ps::TableShare share_of(int id) const;

  ServerSetup setup_;
  std::unique_ptr<ps::TableHandler> tables_;
  std::map<int, ps::TypedTable> sparse_;  ///< by number
  bool has_dense_ = false;                ///< there is a dense table
  std::atomic<int64_t> loaded_ = 0;       ///< dense tables loaded; without any: sparse ones
  std::shared_ptr<executor::Runtime> runtime_;
  std::unique_ptr<Program> program_;  ///< one listen_and_serv, whose block is empty
  Scope scope_;
  ps::Metrics* metrics_ = nullptr;
  std::mutex mutex_;
  ps::Service* running_ = nullptr;  ///< guarded by mutex_
  bool stopped_ = false;            ///< likewise
};

}  // namespace millrace::fleet
