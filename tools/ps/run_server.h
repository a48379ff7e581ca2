#pragma once

#include <string>

#include "jobs/ps/server.h"
#include "tools/ps/flags.h"

namespace millrace::tools {

/// Runs one server until all trainers are done. Prints `ready HOST:PORT` when it accepts calls. On
/// SIGTERM or SIGINT it finishes the running step and notifies the trainers; the exit code is 143
/// or 130.
StatusOr<int> run_server(Tool& tool, const jobs::Server::Files& files, const PsFlags& flags,
                         const std::string& files_root);
/// The same for a heter worker. \param number  of the worker
StatusOr<int> run_heter_worker(Tool& tool, const jobs::Server::Files& files, const PsFlags& flags,
                               int number);

}  // namespace millrace::tools
