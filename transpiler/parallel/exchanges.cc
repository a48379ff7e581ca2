#include "transpiler/parallel/exchanges.h"

#include <algorithm>

#include "transpiler/roles.h"

namespace millrace::transpiler {

bool has_block(const Op& op) {
  return std::any_of(op.attrs().begin(), op.attrs().end(), [](const Attr& attr) {
    return attr.value.kind() == AttrKind::kBlock || attr.value.kind() == AttrKind::kBlocks;
  });
}

Op& ExchangeInserter::emit(llvm::StringRef type, Op* where, const Bucket& bucket) {
  Op& op = block_.insert_before(where, type);
  op.set_input("X", bucket.vars);
  if (type == "exchange_end") op.set_output("Out", bucket.vars);
  op.set_string("kind", bucket.kind.str()).set_int("bucket", bucket.number);
  if (bucket.root >= 0) op.set_int("root", bucket.root);
  if (settings_.rings > 1) op.set_int("ring_id", bucket.number % settings_.rings);
  op.set_int("op_role", bucket.role);
  return op;
}

void ExchangeInserter::begin(Bucket bucket, Op* where) {
  bucket.number = count_++;
  emit("exchange_begin", where, bucket);
  begun_[bucket.number] = std::move(bucket);
}

void ExchangeInserter::end(Bucket& bucket, Op* where) {
  emit("exchange_end", where, bucket);
  for (const std::string& var : bucket.vars) unfinished_.erase(var);
}

void ExchangeInserter::settle_all(Op* where) {
  for (auto& [key, bucket] : open_) begin(std::move(bucket), where);
  open_.clear();
  for (auto& [number, bucket] : begun_) end(bucket, where);
  begun_.clear();
}

// Ends the exchanges of all vars that the op uses.
void ExchangeInserter::settle(const Op& op) {
  Op* const where = const_cast<Op*>(&op);
  const bool waits = settings_.wait_for_all && (role::of(op) & role::kOptimize) != 0 &&
                     role::of(op) != role::kUnspecified;
  if (waits || has_block(op)) return settle_all(where);
  const auto touches = [&](const Bucket& bucket) {
    return std::any_of(bucket.vars.begin(), bucket.vars.end(),
                       [&](const std::string& var) { return op.reads(var) || op.writes(var); });
  };
  const auto names = op.input_names();
  const auto outputs = op.output_names();
  const auto is_unfinished = [&](llvm::StringRef name) { return unfinished_.count(name) > 0; };
  if (std::none_of(names.begin(), names.end(), is_unfinished) &&
      std::none_of(outputs.begin(), outputs.end(), is_unfinished))
    return;
  for (auto it = open_.begin(); it != open_.end();) {
    if (!touches(it->second)) {
      ++it;
      continue;
    }
    begin(std::move(it->second), where);
    it = open_.erase(it);
  }
  for (auto it = begun_.begin(); it != begun_.end();) {
    if (!touches(it->second)) {
      ++it;
      continue;
    }
    end(it->second, where);
    it = begun_.erase(it);
  }
}

void ExchangeInserter::add(const ParallelGrad& grad, Op* where) {
  unfinished_[grad.grad] = true;
  Bucket alone;
  Bucket& bucket = grad.sparse ? alone : open_[{grad.owner, grad.dtype}];
  bucket.kind = grad.sparse ? "gather_rows" : (grad.owner < 0 ? "all_reduce" : "reduce");
  bucket.root = grad.owner;
  bucket.role = role::kBackward;
  bucket.vars.push_back(grad.grad);
  bucket.bytes += grad.elements * dtype_size(grad.dtype);
  if (grad.sparse) return begin(std::move(alone), where);
  if (bucket.bytes < settings_.bucket_bytes) return;
  begin(std::move(bucket), where);
  open_.erase({grad.owner, grad.dtype});
}

void ExchangeInserter::insert(const std::vector<ParallelGrad>& grads) {
  size_t next = 0;
  for (Op* const op : block_.op_vector()) {
    settle(*op);
    Op* const where = block_.next(*op);
    for (; next < grads.size() && grads[next].writer == op; ++next) add(grads[next], where);
  }
  settle_all(nullptr);
}

void ExchangeInserter::broadcast_before(Op* where, llvm::ArrayRef<SentVar> sent) {
  std::map<std::pair<int, DType>, Bucket> buckets;
  for (const SentVar& var : sent) {
    const DType dtype = block_.find_var(var.name)->dtype();
    Bucket alone;
    Bucket& bucket = settings_.fuse_broadcasts ? buckets[{var.owner, dtype}] : alone;
    bucket.kind = "broadcast";
    bucket.root = var.owner;
    bucket.role = role::kOptimize;
    bucket.vars.push_back(var.name);
    if (!settings_.fuse_broadcasts) begin(std::move(alone), where);
  }
  for (auto& [key, bucket] : buckets) begin(std::move(bucket), where);
  settle_all(where);
}

void ExchangeInserter::broadcast(llvm::ArrayRef<SentVar> sent) {
  while (!sent.empty()) {
    Op* const where = sent.front().before;
    const auto group = sent.take_while([&](const SentVar& var) { return var.before == where; });
    broadcast_before(where, group);
    sent = sent.drop_front(group.size());
  }
}

}  // namespace millrace::transpiler
