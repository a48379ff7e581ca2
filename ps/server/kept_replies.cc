#include "ps/server/kept_replies.h"

#include "ps/values.h"

namespace millrace::ps {

void KeptReplies::keep(uint64_t sequence, Reply reply) {
  Kept kept;
  for (const auto& [name, value] : reply.outputs) kept.bytes += bytes_of(value);
  kept.reply = std::make_shared<const Reply>(std::move(reply));
  bytes_ += kept.bytes;
  kept_.insert_or_assign(sequence, std::move(kept));
  while (kept_.size() > 1 && (kept_.size() > kMostCalls || bytes_ > kMostBytes)) drop_first();
}

std::shared_ptr<const KeptReplies::Reply> KeptReplies::find(uint64_t sequence) const {
  const auto found = kept_.find(sequence);
  return found == kept_.end() ? nullptr : found->second.reply;
}

void KeptReplies::settle(uint64_t sequence) {
  while (!kept_.empty() && kept_.begin()->first <= sequence) drop_first();
}

void KeptReplies::drop_first() {
  bytes_ -= kept_.begin()->second.bytes;
  kept_.erase(kept_.begin());
}

}  // namespace millrace::ps
