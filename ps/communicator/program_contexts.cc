#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ps/communicator/communicator.h"

namespace millrace::ps {
namespace {

bool is_selected_rows(const Op& op, llvm::StringRef name) {
  const Var* const var = op.block().find_var_recursive(name);
  return var != nullptr && var->spec().kind == VarKind::kSelectedRows;
}

// The context of a send or recv op; attribute `names` lists the names of its slices on the servers.
StatusOr<CommContext> context_of(const Op& op, llvm::StringRef var, llvm::StringRef names) {
  CommContext context;
  context.var_name = var.str();
  context.split_varnames = get_attr_or<std::vector<std::string>>(op, names, {});
  MILLRACE_ASSIGN_OR_RETURN(context.split_endpoints,
                            get_attr<std::vector<std::string>>(op, "epmap"));
  context.sections = get_attr_or<std::vector<int64_t>>(op, "sections", {});
  context.trainer_id = get_attr_or<int32_t>(op, "trainer_id", 0);
  // The step counter has one name for all its endpoints.
  if (context.split_varnames.size() == 1)
    context.split_varnames.resize(context.split_endpoints.size(), context.split_varnames.front());
  if (Status status = check_context(context); !status.ok())
    return Status(StatusCode::kInvalidProgram, status.message()).at(op.location());
  return context;
}

}  // namespace

StatusOr<CommContexts> send_contexts_of(const Program& program) {
  CommContexts contexts;
  for (const Op& op : program.root().ops()) {
    if (op.type() != "send") continue;
    if (get_attr_or<std::vector<std::string>>(op, "send_varnames", {}).empty()) continue;
    if (!op.has_attr("epmap")) continue;  // ids of a geo program
    const llvm::StringRef var = op.first_input("X");
    MILLRACE_ASSIGN_OR_RETURN(CommContext context, context_of(op, var, "send_varnames"));
    context.aggregate = get_attr_or<bool>(op, "merge_add", false);
    context.use_send_handler = get_attr_or<bool>(op, "use_send_handler", true);
    context.is_sparse = is_selected_rows(op, var);
    contexts.emplace(var.str(), std::move(context));
  }
  return contexts;
}

StatusOr<CommContexts> receive_contexts_of(const Program& program) {
  CommContexts contexts;
  for (const Op& op : program.root().ops()) {
    if (op.type() != "recv") continue;
    if (get_attr_or<std::vector<std::string>>(op, "recv_varnames", {}).empty()) continue;
    const llvm::StringRef var = op.first_output("Out");
    MILLRACE_ASSIGN_OR_RETURN(CommContext context, context_of(op, var, "recv_varnames"));
    contexts.emplace(var.str(), std::move(context));
  }
  return contexts;
}

}  // namespace millrace::ps
