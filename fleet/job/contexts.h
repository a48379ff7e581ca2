#pragma once

#include <map>
#include <string>
#include <vector>

#include "ps/communicator/comm_context.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::fleet {

/// Endpoint in the contexts of dense tables; a placeholder that nobody dials.
inline constexpr const char* kDenseEndpoint = "127.0.0.1:6071";
/// The context that tells servers how many steps are done.
inline constexpr const char* kStepCounter = "@PS_STEP_COUNTER@";

/// What a process sends, by context: the gradients of each embedding, and all dense ones of a table
/// as one. \param endpoints  the servers. Source: spec/fleet.md section 13.
ps::CommContexts send_contexts(const transpiler::TablePlan& plan,
                               const std::vector<std::string>& endpoints, int role_id);

/// The same with one dense context a gradient; their tables are numbered one after the other, as
/// jobs with heter workers have it.
/// \param elements  of each gradient, by name
ps::CommContexts split_send_contexts(const transpiler::TablePlan& plan,
                                     const std::vector<std::string>& endpoints, int role_id,
                                     const std::map<std::string, int64_t>& elements);

/// The context of kStepCounter: one step for each server.
/// \param table_id  of the servers' table of steps
ps::CommContext step_context(const std::vector<std::string>& endpoints, int role_id, int table_id);

/// Parameters of each dense table, by table.
std::map<int32_t, std::vector<std::string>> dense_receives(const transpiler::TablePlan& plan);
/// The parameter of each sparse table, by table.
std::map<int32_t, std::vector<std::string>> sparse_receives(const transpiler::TablePlan& plan);

}  // namespace millrace::fleet
