#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "io/model_folder.h"
#include "jobs/ps/trainer_job.h"
#include "ps/client/gather.h"
#include "ps/client/link_sender.h"
#include "ps/saving/distributed_load.h"
#include "ps/server/load_slices.h"

// Calls that all trainers of a running job make together: they meet, load a model, and end a day.
namespace millrace::jobs {
namespace trainer_loading {
namespace {

// The vars that a server of this program has loaded, as one call to it.
StatusOr<ps::Client::Call> set_call(const Program& program, const Scope& scope) {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, ps::find_serve_op(program));
  ps::protocol::Send message;
  message.kind = ps::SendKind::kValues;
  for (const Var& var : program.root().vars()) {
    const Value* const value = var.persistable() ? scope.find(var.name()) : nullptr;
    if (value != nullptr && value->initialized()) message.vars.push_back({var.name().str(), value});
  }
  return ps::Client::Call(get_attr_or(*serve, "endpoint", std::string()), std::move(message));
}

}  // namespace
}  // namespace trainer_loading

Status TrainerJob::barrier(ps::CommBarrier kind) {
  return ps::LinkSender(client_).barrier(kind, {});
}

Status TrainerJob::send_model(llvm::ArrayRef<const Program*> servers, const std::string& folder) {
  // a file that cannot be loaded must not leave the job with the values of some servers only
  std::deque<Scope> scopes;
  std::vector<ps::Client::Call> calls;
  for (const Program* const program : servers) {
    Scope& scope = scopes.emplace_back();
    MILLRACE_RETURN_IF_ERROR(ps::load_server_persistables(*slices_, *program, folder, scope,
                                                          {.threads = settings_.threads}));
    MILLRACE_ASSIGN_OR_RETURN(calls.emplace_back(), trainer_loading::set_call(*program, scope));
  }
  return client_->call_all(calls);
}

// What only trainers hold.
Status TrainerJob::load_own(const std::string& folder) {
  const std::vector<std::string>& remote = local_->remote();
  return load_but(folder, [&](const std::string& name) {
    return std::ranges::find(remote, name) != remote.end() || on_servers_.contains(name);
  });
}

// Parameters as the servers have them now.
Status TrainerJob::fetch_parameters() {
  if (communicator_ != nullptr) {
    MILLRACE_RETURN_IF_ERROR(communicator_->adopt(scope_));  // what was received before
    MILLRACE_RETURN_IF_ERROR(communicator_->recv(scope_));
    return communicator_->start(&scope_);
  }
  std::vector<std::string> names;
  for (const std::string& name : local_->remote()) {
    const Value* const value = scope_.find(name);
    const auto is_listed = [&](const transpiler::DistributedVar& var) {
      return var.origin.name == name;
    };
    if (value != nullptr && value->initialized() &&
        name != slices_->properties.distributed_lookup_table &&
        std::ranges::any_of(slices_->overview.vars(), is_listed))
      names.push_back(name);
  }
  MILLRACE_ASSIGN_OR_RETURN(auto values, ps::gather_vars(*client_, *slices_, names, settings_.log));
  for (auto& [name, value] : values) scope_.local(name) = std::move(value);
  return devices_ == nullptr ? Ok() : devices_->share_all();
}

Status TrainerJob::load_model(llvm::ArrayRef<const Program*> servers, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(need_slices());
  if (slices_->properties.geo)
    return Unimplemented(
        "loading a model in a geo job while it runs, as its workers hold parameters of their own");
  if (tables_ != nullptr) return Unimplemented("loading typed tables of a job while it runs");
  if (communicator_ != nullptr) MILLRACE_RETURN_IF_ERROR(communicator_->stop());
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  MILLRACE_RETURN_IF_ERROR(barrier(ps::CommBarrier::kLoad));
  Status loaded = settings_.trainer == 0 ? send_model(servers, folder) : Ok();
  // do not return before the barrier: the others would wait for this trainer
  Status met = barrier(ps::CommBarrier::kLoad);
  if (loaded.ok()) loaded = std::move(met);
  if (loaded.ok()) loaded = load_own(folder);
  const Status fetched = fetch_parameters();
  return loaded.ok() ? fetched : loaded;
}

Status TrainerJob::end_day() {
  if (tables_ == nullptr)
    return InvalidArgument("ending a day: the servers of this job have no typed tables")
        .with_hint("sparse_tables of the strategy name embeddings that become typed tables");
  MILLRACE_RETURN_IF_ERROR(barrier(ps::CommBarrier::kShrink));
  Status ended;
  for (const auto& [id, entry] : tables_->all()) {
    if (settings_.trainer == 0 && ended.ok()) ended = tables_->client().shrink(id);
  }
  Status met = barrier(ps::CommBarrier::kShrink);
  return ended.ok() ? met : ended;
}

}  // namespace millrace::jobs
