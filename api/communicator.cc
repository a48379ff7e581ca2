#include "api/communicator.h"

#include <algorithm>
#include <utility>

#include "api/internals.h"
#include "executor/array_values.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/program.h"
#include "ps/client/connect.h"
#include "ps/client/link_sender.h"
#include "ps/communicator/communicator.h"

namespace millrace::api {
namespace {

constexpr std::chrono::seconds kWaitReport{10};

// The mode that the communicator takes from the program.
ps::CommMode mode_of(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "send_barrier" && get_attr_or(op, "half_async", false))
      return ps::CommMode::kHalfAsync;
  }
  return ps::CommMode::kAsync;
}

std::vector<std::string> vars_of(const ps::CommContexts& contexts) {
  std::vector<std::string> names;
  for (const auto& [name, context] : contexts) names.push_back(name);
  return names;
}

}  // namespace

struct Communicator::Parts {
  std::shared_ptr<ps::Client> client;
  std::unique_ptr<Program> program;  ///< recv ops were marked
  std::unique_ptr<ps::Communicator> communicator;
  ps::Remarks remarks;  ///< on the settings
};

Communicator::Communicator(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

StatusOr<Communicator> Communicator::open(const Program& program, const Connection& connection,
                                          const CommunicatorOptions& options) {
  if (options.cpu_num < 1)
    return InvalidArgument("options.cpu_num: expected at least 1, found {}", options.cpu_num);
  if (options.trainer < 0)
    return InvalidArgument("options.trainer: expected at least 0, found {}", options.trainer);
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommContexts sent, ps::send_contexts_of(program));
  if (sent.empty())
    return InvalidArgument("the program sends nothing through a communicator")
        .with_hint("distribute it with config.runtime_split_send_recv and sync_mode false");
  auto parts = std::make_unique<Parts>();
  parts->program = program.clone();
  MILLRACE_ASSIGN_OR_RETURN(
      ps::CommunicatorOptions settings,
      ps::communicator_options(mode_of(program), options.settings, options.cpu_num, /*k_steps=*/1,
                               parts->remarks));
  settings.trainer_id = options.trainer;
  // A call must not take longer than the communicator waits.
  const auto deadline =
      std::min(options.deadline, std::chrono::milliseconds(settings.rpc_deadline_ms));
  parts->client = std::make_shared<ps::Client>(
      Internals::state(connection).transport,
      Internals::client(connection, options.trainer, deadline, options.heartbeat));
  parts->client->set_plan(ps::facts_of_program(program));
  MILLRACE_ASSIGN_OR_RETURN(
      parts->communicator,
      ps::Communicator::of_program(*parts->program, std::move(settings),
                                   std::make_shared<ps::LinkSender>(parts->client)));
  MILLRACE_RETURN_IF_ERROR(
      ps::connect_to_servers(*parts->client, ps::servers_named_in(program), kWaitReport,
                             log_at(sink_of(options.log), LogLevel::kWarning)));
  return Communicator(std::move(parts));
}

std::vector<std::string> Communicator::sent_vars() const {
  return vars_of(parts_->communicator->send_contexts());
}
std::vector<std::string> Communicator::received_vars() const {
  return vars_of(parts_->communicator->receive_contexts());
}

std::vector<std::string> Communicator::remarks() const {
  std::vector<std::string> all = parts_->remarks;
  const ps::Remarks& later = parts_->communicator->remarks();
  all.insert(all.end(), later.begin(), later.end());
  return all;
}

Status Communicator::start() {
  return parts_->communicator->start();
}
Status Communicator::stop() {
  return parts_->communicator->stop();
}
bool Communicator::is_running() const {
  return parts_->communicator->is_running();
}

Status Communicator::send(const std::string& var, const Array& value) {
  Value copy;
  MILLRACE_ASSIGN_OR_RETURN(copy.as<Tensor>(), executor::to_tensor(var, value));
  return parts_->communicator->send(var, std::move(copy));
}

Status Communicator::send_rows(const std::string& var, const Rows& value) {
  Scope checked;
  MILLRACE_RETURN_IF_ERROR(checked.set_rows(var, value));
  return parts_->communicator->send(var, std::move(Internals::vars(checked).local(var)));
}

Status Communicator::barrier() {
  return parts_->communicator->barrier();
}
Status Communicator::leave() {
  return parts_->communicator->leave();
}
Status Communicator::recv(const Scope& scope) {
  return parts_->communicator->recv(Internals::vars(scope));
}
Status Communicator::finish_step(const Scope& scope) {
  return parts_->communicator->finish_step(Internals::vars(scope));
}

Communicator::Counts Communicator::counts() const {
  const ps::Communicator::Counts counts = parts_->communicator->counts();
  return {counts.sends, counts.merged, counts.receives};
}

Status Communicator::close() {
  if (is_running()) return InvalidArgument("close: the communicator is running, call stop() first");
  return parts_->client->complete(/*stay=*/false);
}

}  // namespace millrace::api
