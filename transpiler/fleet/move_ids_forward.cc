#include "transpiler/fleet/move_ids_forward.h"

#include <algorithm>
#include <set>

namespace millrace::transpiler {
namespace {

bool in_order(const Op* a, const Op* b) {
  return a->comes_before(*b);
}

// Ops after `first` that the op needs, itself included, in block order.
std::vector<Op*> needed_after(const Block& block, const Op& first, Op& op) {
  std::set<Op*> found{&op};
  std::vector<Op*> todo{&op};
  while (!todo.empty()) {
    Op* const at = todo.back();
    todo.pop_back();
    for (const llvm::StringRef name : at->input_names()) {
      for (Op* const writer : block.writers_of(name)) {
        if (writer == at || !writer->comes_before(*at)) continue;
        if (writer != &first && writer->comes_before(first)) continue;
        if (found.insert(writer).second) todo.push_back(writer);
      }
    }
  }
  std::vector<Op*> ops(found.begin(), found.end());
  std::sort(ops.begin(), ops.end(), in_order);
  return ops;
}

std::vector<Op*> each_once(std::vector<Op*> ops) {
  std::sort(ops.begin(), ops.end(), in_order);
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  return ops;
}

std::vector<Op*> writers(const Block& block, const std::vector<std::string>& names) {
  std::vector<Op*> ops;
  for (const std::string& name : names) llvm::append_range(ops, block.writers_of(name));
  return each_once(std::move(ops));
}

std::vector<Op*> readers(const Block& block, const std::vector<std::string>& names) {
  std::vector<Op*> ops;
  for (const std::string& name : names) llvm::append_range(ops, block.readers_of(name));
  return each_once(std::move(ops));
}

}  // namespace

bool move_ids_forward(Block& block, const std::vector<std::string>& ids,
                      const std::vector<std::string>& outputs) {
  const std::vector<Op*> users = readers(block, outputs);
  const std::vector<Op*> producers = writers(block, ids);
  if (users.empty() || producers.empty()) return true;
  Op& first = *users.front();
  std::vector<Op*> moving;
  for (Op* const producer : producers) {
    if (producer != &first && producer->comes_before(first)) continue;
    for (Op* const op : needed_after(block, first, *producer)) {
      if (llvm::is_contained(users, op)) return false;
      if (!llvm::is_contained(moving, op)) moving.push_back(op);
    }
  }
  for (Op* const op : moving) {
    block.clone_before(&first, *op);
    block.erase(*op);
  }
  return true;
}

}  // namespace millrace::transpiler
