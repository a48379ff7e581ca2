#include <memory>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "ps/server/service.h"

// The method `run`: blocks that trainers start by a message.
namespace millrace::ps {

// Running a block again could change its vars twice. So the response is kept for a repeat, also
// that of a block that failed halfway.
Status Service::run(const Call& call, const protocol::Run& message) {
  std::shared_ptr<const KeptReplies::Reply> earlier;
  {
    const std::lock_guard lock(core_->mutex);
    earlier = core_->trainers.at(call.trainer()).replies.find(call.request.sequence);
  }
  if (earlier == nullptr && call.repeat)
    return {
        StatusCode::kExecution,
        fmt::format(
            "call {} of trainer {} has run the block of message '{}' before, and its response is "
            "no longer known: the server was started again, or others came later",
            call.request.sequence, call.trainer(), message.message)};
  if (earlier == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(KeptReplies::Reply reply, run_block(message));
    earlier = keep_reply(call, std::move(reply));
  }
  MILLRACE_RETURN_IF_ERROR(Status(earlier->status));
  for (const auto& [name, value] : earlier->outputs)
    MILLRACE_RETURN_IF_ERROR(call.reply.put(name, value));
  return Ok();
}

StatusOr<KeptReplies::Reply> Service::run_block(const protocol::Run& message) {
  const auto found = core_->plan.message_blocks.find(message.message);
  if (found == core_->plan.message_blocks.end())
    return NotFound("this server ({}) has no block for the message '{}'", core_->plan.endpoint,
                    message.message);
  ServerBlock& block = *core_->block(found->second);
  const BlockLock lock = block.lock();
  for (const RequestItem& item : message.inputs) {
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::check(item, *var));
  }
  std::vector<const ServerVar*> outputs;
  for (const std::string& name : message.outputs) {
    MILLRACE_ASSIGN_OR_RETURN(outputs.emplace_back(), core_->find_var(name));
  }
  for (const RequestItem& item : message.inputs) {
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::take(item, *var->value));
  }
  KeptReplies::Reply reply;
  reply.status = block.run();
  for (size_t i = 0; i < outputs.size() && reply.status.ok(); ++i)
    reply.status = ServerCore::copy(message.outputs[i], *outputs[i], reply.outputs.emplace_back());
  return reply;
}

std::shared_ptr<const KeptReplies::Reply> Service::keep_reply(const Call& call,
                                                              KeptReplies::Reply reply) {
  const std::lock_guard lock(core_->mutex);
  Trainer& trainer = core_->trainers.at(call.trainer());
  // the record of a replacement must not have this call
  if (trainer.incarnation != call.request.caller.incarnation)
    return std::make_shared<const KeptReplies::Reply>(std::move(reply));
  trainer.replies.keep(call.request.sequence, std::move(reply));
  return trainer.replies.find(call.request.sequence);
}

}  // namespace millrace::ps
