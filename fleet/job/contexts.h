#pragma once

#include <map>
#include <string>
#include <vector>

#include "ps/communicator/comm_context.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

/// Endpoint in the contexts of dense tables; a placeholder that is never connected to.
inline constexpr const char* kDenseEndpoint = "127.0.0.1:6071";
/// Name of the context that sends the number of steps to servers.
inline constexpr const char* kStepCounter = "@PS_STEP_COUNTER@";

/// What a process sends, by context: one for the gradients of each embedding, and one for all dense
/// gradients of a table.
/// \param endpoints  the servers
/// Source: spec/fleet.md section 13.
ps::CommContexts send_contexts(const transpiler::TablePlan& plan,
                               const std::vector<std::string>& endpoints, int role_id);

/// The same with one dense context per gradient, with consecutive table numbers, as in jobs with
/// heter workers.
/// \param elements  number of elements of each gradient, by name
ps::CommContexts split_send_contexts(const transpiler::TablePlan& plan,
                                     const std::vector<std::string>& endpoints, int role_id,
                                     const std::map<std::string, int64_t>& elements);

/// The context of kStepCounter, which sends one step counter to each server.
/// \param table_id  the servers' step counter table
ps::CommContext step_context(const std::vector<std::string>& endpoints, int role_id, int table_id);

/// Parameters of each dense table, by table id.
std::map<int32_t, std::vector<std::string>> dense_receives(const transpiler::TablePlan& plan);
/// The parameter of each sparse table, by table id.
std::map<int32_t, std::vector<std::string>> sparse_receives(const transpiler::TablePlan& plan);

}  // namespace millrace::fleet
