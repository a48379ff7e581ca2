#include "ps/communicator/communicator.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ps/communicator/communicator_impl.h"

namespace millrace::ps {

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

StatusOr<std::unique_ptr<Communicator>> Communicator::create(CommMode mode,
                                                             CommunicatorOptions options,
                                                             std::shared_ptr<Sender> sender) {
  Remarks remarks;
  MILLRACE_RETURN_IF_ERROR(settle_options(mode, options, remarks));
  auto impl =
      std::make_unique<Impl>(mode, std::move(options), std::move(remarks), std::move(sender));
  MILLRACE_RETURN_IF_ERROR(impl->init({}, {}));
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

StatusOr<std::unique_ptr<Communicator>> Communicator::of_program(Program& program,
                                                                 CommunicatorOptions options,
                                                                 std::shared_ptr<Sender> sender) {
  bool half_async = false;
  for (Op& op : program.root().ops()) {
    if (op.type() == "send_barrier") half_async |= get_attr_or<bool>(op, "half_async", false);
  }
  return of_program(program, half_async ? 2 : 1, {}, 0, 0, std::move(options), std::move(sender));
}

StatusOr<std::unique_ptr<Communicator>> Communicator::of_program(Program& program, int mode,
                                                                 const CommContexts& push_vars,
                                                                 int trainers, int push_nums,
                                                                 CommunicatorOptions options,
                                                                 std::shared_ptr<Sender> sender) {
  if (mode < 1)
    return InvalidArgument(
        "{} is no mode of a communicator for a program, expected 1 "
        "(async), 2 (half-async) or 3 (geo)",
        mode);
  MILLRACE_ASSIGN_OR_RETURN(const CommMode checked, comm_mode(mode));
  CommContexts send;
  CommContexts receive;
  if (checked == CommMode::kGeo) {
    if (trainers <= 0) return InvalidArgument("trainers is {}, expected more than 0", trainers);
    if (push_nums <= 0) return InvalidArgument("push_nums is {}, expected more than 0", push_nums);
    if (push_vars.empty())
      return InvalidArgument("push_vars is empty; geo has nothing to exchange");
    options.trainers = trainers;
    options.max_merge_var_num = push_nums;
    receive = push_vars;
    for (const auto& [name, context] : push_vars) send.emplace(name, delta_context(context));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(send, send_contexts_of(program));
    MILLRACE_ASSIGN_OR_RETURN(receive, receive_contexts_of(program));
  }
  for (Op& op : program.root().ops()) {
    if (op.type() == "recv" && receive.contains(op.first_output("Out").str()))
      op.set_int("do_not_run", 1);
  }
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                            create(checked, std::move(options), std::move(sender)));
  MILLRACE_RETURN_IF_ERROR(communicator->init_with_ctx(std::move(send), std::move(receive)));
  return communicator;
}

CommMode Communicator::mode() const {
  return impl_->mode_;
}
const CommunicatorOptions& Communicator::options() const {
  return impl_->options_;
}
const Remarks& Communicator::remarks() const {
  return impl_->remarks_;
}
const CommContexts& Communicator::send_contexts() const {
  return impl_->send_contexts_;
}
const CommContexts& Communicator::receive_contexts() const {
  return impl_->receive_contexts_;
}
bool Communicator::is_running() const {
  return impl_->running_;
}
Communicator::Counts Communicator::counts() const {
  return impl_->counts();
}

Status Communicator::init_with_ctx(CommContexts send, CommContexts receive) {
  return impl_->init(std::move(send), std::move(receive));
}
Status Communicator::start(Scope* scope) {
  return impl_->start(scope);
}
Status Communicator::stop() {
  return impl_->stop();
}

Status Communicator::send(std::string_view var, const Value& value) {
  return impl_->send(var, &value, nullptr);
}
Status Communicator::send(std::string_view var, Value&& value) {
  return impl_->send(var, nullptr, &value);
}
bool Communicator::sends(std::string_view var) const {
  return impl_->places_.find(var) != impl_->places_.end();
}

Status Communicator::barrier() {
  return impl_->barrier();
}
void Communicator::set_barrier_trigger(int threads) {
  impl_->set_trigger(threads);
}
Status Communicator::leave() {
  return impl_->leave();
}

Status Communicator::adopt(Scope& scope) {
  return impl_->adopt(scope);
}
StatusOr<bool> Communicator::adopt(std::string_view var, Value& live) {
  return impl_->received_->adopt(var, live);
}
Status Communicator::finish_step(Scope& scope) {
  return impl_->finish_step(scope);
}

Status Communicator::recv(Scope& scope) {
  return impl_->receive_into(scope, [](const CommContext& context) { return !context.is_sparse; });
}
Status Communicator::init_params(Scope& scope) {
  return impl_->init_params(scope);
}
Status Communicator::pull_dense(Scope& scope, int table_id) {
  bool found = false;
  const Status status = impl_->receive_into(scope, [&](const CommContext& context) {
    const bool wanted = context.table_id == table_id;
    found |= wanted;
    return wanted;
  });
  MILLRACE_RETURN_IF_ERROR(status);
  return found ? Ok() : NotFound("table {} has no parameters to receive", table_id);
}
Status Communicator::push_sparse_param(std::string_view var, int table_id, Scope& scope) {
  return impl_->push_sparse_param(var, table_id, scope);
}

}  // namespace millrace::ps
