#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/client/client.h"

namespace millrace::ps {

/// The servers that the communication ops of a program name: send, recv and their barriers. The
/// barriers name all servers of the job, including those that hold no slices. Each server occurs
/// once, ordered by name.
/// Source: spec/transpiler.md section 4.
std::vector<std::string> servers_named_in(const Program& program);

/// The heter workers that run blocks for a program (send_and_recv).
std::set<std::string> heter_workers_named_in(const Program& program);

/// What the program of a trainer says about each server: the vars that recv ops fetch from it, with
/// dtype and dims. It does not say whether servers are synchronous: programs with barriers may have
/// servers of either mode, by the original's options sync_mode of transpile() and of the config.
std::map<std::string, PlanFacts> facts_of_program(const Program& program);

/// Sends a hello to servers in parallel, so that each of them expects this trainer, even one that
/// holds nothing for it; a later `Client::complete()` reaches them all. Waits for servers that are
/// not up yet, until the deadline of the client's calls.
/// \param every  interval between log lines that name the servers that have not responded yet
/// \param tell   receives these lines; may be empty
/// Errors: those of Client::call() for the first server in order that failed, with a note that
/// names all failed servers.
Status connect_to_servers(Client& client, const std::vector<std::string>& endpoints,
                          std::chrono::milliseconds every,
                          const std::function<void(const std::string&)>& tell);

}  // namespace millrace::ps
