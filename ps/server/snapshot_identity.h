#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Name of the record in snapshots of servers.
inline constexpr const char* kIdentityRecord = "identity";

/// Name of the record in snapshots that were made for a job and have its values only: facts about
/// the server for which they were made (ServerOptions::plan), one per line.
inline constexpr const char* kLayoutRecord = "layout";

/// Name of a note in the manifest of snapshots: number of steps that other servers had applied to
/// the values from which the job began. Absent: 0.
inline constexpr const char* kStepsBeforeNote = "steps_before";

/// The number in a note of a manifest; 0 if it is absent. Errors: kInvalidData for another text.
StatusOr<int64_t> number_in_note(const std::map<std::string, std::string>& notes,
                                 const std::string& name);

/// What a snapshot must have in common with the server that loads it, one fact per line: the
/// name of the job first (if it has one), then, sorted, the way updates are applied, the ops of the
/// blocks that update, with attributes, the number of the server, the slices that it holds of which
/// vars (ServerOptions::plan), the typed tables, the number of trainers, and the persistable vars
/// of the program with kind, dtype and dims. Endpoints are left out: a job may move.
std::string identity_of(const ServerCore& core);

/// A server that has typed tables only, as in fleet jobs.
struct TablesServer {
  ServerMode mode = ServerMode::kSync;
  int server = 0;
  int trainers = 1;
  PlanFacts plan;           ///< ServerOptions::plan
  std::vector<int> tables;  ///< their numbers
};
/// identity_of() such a server, without the name of the job.
std::string identity_of(const TablesServer& server);

/// Compares the record of a snapshot with identity_of() the server. A job without a name fits any,
/// and so does a server without ServerOptions::plan.
/// Errors: kInvalidData with the first lines that differ.
Status check_identity(std::string_view stored, std::string_view own);

/// The facts about the server in a record kIdentityRecord (ServerOptions::plan), one per line;
/// empty where it had none.
std::string layout_in(std::string_view identity);

/// Compares a record kLayoutRecord with the facts of the server that loads the snapshot. A server
/// without facts fits any. Errors: kInvalidData with the first fact that differs.
Status check_layout(std::string_view stored, const PlanFacts& own);

}  // namespace millrace::ps
