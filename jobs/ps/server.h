#pragma once

#include <functional>
#include <memory>
#include <string>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/import.h"
#include "ps/metrics/metrics.h"
#include "ps/server/server_core.h"
#include "ps/transport/transport.h"

namespace millrace::jobs {

/// One parameter server of a job. It holds either slices of vars and what its program computes with
/// them (ServerJob), or only typed tables (FleetServerJob).
///
/// Thread-safety: one caller at a time, except for stop().
class Server {
 public:
  /// The input files.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if there are no params
    std::string
        params;  ///< whole variables: npz, or a folder with one file per variable; may be empty
    std::string load_program = {};  ///< run after the startup program (io_load); may be empty
  };
  /// Settings of the run.
  struct Settings {
    /// `continues` and `tables` are set when the server is opened.
    ps::ServerOptions service;
    std::string endpoint;      ///< where to listen; empty: at the endpoint in the program
    int loading_threads = 1;   ///< threads that read files of parameters
    ImportOptions reading;     ///< limits for program files
    LogSink log = ignore_log;  ///< receives warnings
  };

  Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  virtual ~Server() = default;

  /// The number of trainers that the server waits for, as its files say.
  [[nodiscard]] virtual int trainers() const = 0;
  /// Sets a callback that receives the endpoint at which the server listens.
  virtual void on_ready(std::function<void(const std::string&)> callback) = 0;
  /// Makes the server publish its metrics there; metrics must outlive the server.
  virtual void publish_to(ps::Metrics& metrics) = 0;
  /// Serves until all trainers have completed. Errors: those of the ops and of the transport;
  /// kDistributed for a lost trainer.
  virtual Status serve() = 0;
  /// Ends serve(). Thread-safety: any thread.
  virtual void stop() = 0;
};

/// Opens a server of the kind that matches the files: a FleetServerJob if `transpile-program
/// --fleet` wrote them, otherwise a ServerJob. Errors: those of their open().
StatusOr<std::unique_ptr<Server>> open_server(const Server::Files& files, Server::Settings settings,
                                              std::shared_ptr<ps::Transport> transport);

}  // namespace millrace::jobs
