#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/client/client.h"

namespace millrace::ps {

/// Servers that the transfers of a program name: those of send, recv and their barriers, which name
/// all servers of the job, also those that hold nothing. Each once, in order of their names.
/// Source: spec/transpiler.md section 4.
std::vector<std::string> servers_named_in(const Program& program);

/// Says hello to servers side by side, so that each counts on this trainer, also one that holds
/// nothing for it; later `Client::complete()` reaches them all. A server that is not there yet is
/// waited for until the deadline of the client's calls.
/// \param every  between two lines that say who has not answered yet
/// \param tell   receives these lines; may be empty
/// Errors: those of Client::call() for the first server in order that failed, with a note that
/// names all that did.
Status meet_servers(Client& client, const std::vector<std::string>& endpoints,
                    std::chrono::milliseconds every,
                    const std::function<void(const std::string&)>& tell);

}  // namespace millrace::ps
