#include "transpiler/distribute/heter_split.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSet.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "framework/text_form/print.h"
#include "transpiler/needed_ops.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace heter_split {
namespace {

using Names = std::vector<llvm::StringRef>;

// A slot of batch_norm that no kernel writes or reads.
constexpr llvm::StringLiteral kWorkSpace = "ReserveSpace";
constexpr int32_t kNeverMoved = role::kOptimize | role::kRpc | role::kDist | role::kLrSched;

// The device of an op that a heter worker runs; empty for ops of trainers.
std::string heter_device(const Op& op) {
  std::string device = get_attr_or<std::string>(op, "op_device", "");
  if ((role::of(op) & kNeverMoved) != 0 || llvm::StringRef(device).split(':').first == "cpu")
    device.clear();
  return device;
}

// Names of vars without placeholders, each once.
Names without_repeats(llvm::ArrayRef<llvm::StringRef> names) {
  Names unique;
  for (const llvm::StringRef name : names) {
    if (!name.empty() && name != names::kEmpty && !llvm::is_contained(unique, name))
      unique.push_back(name);
  }
  return unique;
}

// All that an op mentions, with the ops of its blocks: they may write what they mention.
void add_mentioned(const Op& op, Names& names) {
  for (const int32_t index : owned_blocks(op)) {
    for (const Op& inner : op.program().block(static_cast<size_t>(index)).ops()) {
      const auto reads = inner.input_names();
      const auto writes = inner.output_names();
      names.insert(names.end(), reads.begin(), reads.end());
      names.insert(names.end(), writes.begin(), writes.end());
      add_mentioned(inner, names);
    }
  }
}

struct Uses {
  Names reads;
  Names writes;
};

Uses uses_of(const Op& op) {
  Names reads;
  add_mentioned(op, reads);
  Names writes = reads;
  for (const auto& [slots, names] :
       {std::pair(op.inputs(), &reads), std::pair(op.outputs(), &writes)}) {
    for (const Slot& slot : slots) {
      if (op.name_of(slot.name) == kWorkSpace) continue;
      for (const Arg& arg : slot.args) names->push_back(op.name_of(arg.name));
    }
  }
  return {without_repeats(reads), without_repeats(writes)};
}

Status refused(const Op& op, const std::string& what) {
  return Unimplemented("heter workers do not run {} (op_device '{}')", what,
                       get_attr_or<std::string>(op, "op_device", ""))
      .at(op.location());
}

Status check_runs_there(const Op& op) {
  if (!owned_blocks(op).empty()) return refused(op, "ops with blocks");
  for (const char* const attr : {"is_distributed", "remote_prefetch"}) {
    if (get_attr_or(op, attr, false))
      return refused(op, fmt::format("lookups of tables that stay on servers ({})", attr));
  }
  const Uses uses = uses_of(op);
  if (uses.writes.empty()) return refused(op, "ops without outputs");
  for (const Names* const names : {&uses.reads, &uses.writes}) {
    for (const llvm::StringRef name : *names) {
      const Var* const var = op.block().find_var(name);
      if (var == nullptr)
        return refused(op, fmt::format("ops on undeclared vars ('{}')", name.str()));
      if (var->kind() != VarKind::kLodTensor && var->kind() != VarKind::kSelectedRows)
        return refused(op, fmt::format("ops on '{}', which is no tensor", name.str()));
    }
  }
  return Ok();
}

// The turn in which each op runs: even turns are of the trainer, odd ones of the worker.
class Turns {
 public:
  // An op runs no earlier than what it depends on, and later if the other process runs that.
  int place(const Uses& uses, bool on_worker) {
    const int side = on_worker ? 1 : 0;
    int turn = side;
    const auto wait = [&](int earlier) {
      if (earlier >= 0) turn = std::max(turn, earlier + (earlier % 2 == side ? 0 : 1));
    };
    for (const llvm::StringRef name : uses.reads) wait(times_[name].written);
    for (const llvm::StringRef name : uses.writes) {
      wait(times_[name].written);
      wait(times_[name].read);
    }
    for (const llvm::StringRef name : uses.reads)
      times_[name].read = std::max(times_[name].read, turn);
    for (const llvm::StringRef name : uses.writes) times_[name].written = turn;
    return turn;
  }
  // True if the worker has computed all of these.
  bool are_of_worker(const Names& names) {
    return !names.empty() && llvm::all_of(names, [&](llvm::StringRef name) {
      const int written = times_[name].written;
      return written >= 0 && written % 2 == 1;
    });
  }

 private:
  struct Times {
    int written = -1;  // last turn that writes it
    int read = -1;     // last turn that reads it
  };
  llvm::StringMap<Times> times_;
};

// FNV-1a; equal on all machines, unlike std::hash.
uint64_t digest_of(uint64_t digest, llvm::StringRef text) {
  for (const char byte : text)
    digest = (digest ^ static_cast<unsigned char>(byte)) * UINT64_C(0x100000001b3);
  return digest;
}

// A worker whose program has other ops then does not know the message.
std::string message_of(size_t number, const HeterStage& stage) {
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  for (const Op* const op : stage.ops)
    digest = digest_of(digest, print_op(*op, {.callstack = false}) + "\n");
  for (const auto* const names : {&stage.inputs, &stage.outputs}) {
    for (const std::string& name : *names) digest = digest_of(digest, name + "\n");
  }
  return fmt::format("stage{}_{:016x}", number, digest);
}

void find_inputs(HeterStage& stage) {
  llvm::StringSet<> known;
  for (const Op* const op : stage.ops) {
    const Uses uses = uses_of(*op);
    for (const llvm::StringRef name : uses.reads) {
      if (known.insert(name).second) stage.inputs.push_back(name.str());
    }
    for (const llvm::StringRef name : uses.writes) known.insert(name);
  }
}

// Vars that ops outside of the stage read, that keep their value between steps, or that are wanted.
void find_outputs(HeterStage& stage, const llvm::StringMap<std::set<int>>& readers, int turn,
                  const llvm::StringSet<>& wanted) {
  llvm::StringSet<> seen;
  for (const Op* const op : stage.ops) {
    const bool is_loss =
        (role::of(*op) & role::kLoss) != 0 && (role::of(*op) & role::kBackward) == 0;
    for (const llvm::StringRef name : uses_of(*op).writes) {
      const auto found = readers.find(name);
      const bool is_read =
          found != readers.end() && (found->second.size() > 1 || *found->second.begin() != turn);
      const bool is_kept = op->block().find_var(name)->persistable() || wanted.contains(name);
      if ((is_read || is_kept || is_loss) && seen.insert(name).second)
        stage.outputs.push_back(name.str());
    }
  }
  // a call returns something, even if no op uses it
  if (stage.outputs.empty())
    stage.outputs.push_back(uses_of(*stage.ops.back()).writes.front().str());
}

// A call needs an input. Ops that read nothing (constants) run in the trainer where a stage has no
// others.
void move_stages_without_inputs(HeterSplit& split) {
  for (size_t i = 0; i < split.worker.size();) {
    find_inputs(split.worker[i]);
    if (!split.worker[i].inputs.empty()) {
      ++i;
      continue;
    }
    std::vector<Op*>& turn = split.trainer[i];
    for (const std::vector<Op*>* const ops : {&split.worker[i].ops, &split.trainer[i + 1]})
      turn.insert(turn.end(), ops->begin(), ops->end());
    split.worker.erase(split.worker.begin() + static_cast<std::ptrdiff_t>(i));
    split.trainer.erase(split.trainer.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// The turns that read each var.
llvm::StringMap<std::set<int>> readers_of(const HeterSplit& split) {
  llvm::StringMap<std::set<int>> readers;
  const auto add = [&](const std::vector<Op*>& ops, size_t turn) {
    for (const Op* const op : ops)
      for (const llvm::StringRef name : uses_of(*op).reads)
        readers[name].insert(static_cast<int>(turn));
  };
  for (size_t i = 0; i < split.trainer.size(); ++i) add(split.trainer[i], 2 * i);
  for (size_t i = 0; i < split.worker.size(); ++i) add(split.worker[i].ops, 2 * i + 1);
  return readers;
}

Status check_returned(const HeterSplit& split, const std::vector<std::string>& returned) {
  for (const std::string& name : returned) {
    const bool known = llvm::any_of(split.worker, [&](const HeterStage& stage) {
      return llvm::is_contained(stage.outputs, name);
    });
    if (!known) return InvalidArgument("returned: no op of a heter worker computes '{}'", name);
  }
  return Ok();
}

// True if a heter worker runs the op. Errors: several devices, and those of check_runs_there().
StatusOr<bool> is_of_worker(const Op& op, Turns& turns, std::string& device) {
  const std::string own = heter_device(op);
  const bool joins = op.type() == "sum" && role::of(op) == role::kBackward &&
                     get_attr_or<std::string>(op, "op_device", "").empty() &&
                     turns.are_of_worker(uses_of(op).reads);
  if (own.empty() && !joins) return false;
  if (device.empty()) device = own;
  if (!own.empty() && own != device)
    return refused(op, fmt::format("ops of several devices; an op before has '{}'", device));
  MILLRACE_RETURN_IF_ERROR(check_runs_there(op));
  return true;
}

}  // namespace
}  // namespace heter_split

void drop_work_space(Op& op) {
  op.remove_input(heter_split::kWorkSpace);
  op.remove_output(heter_split::kWorkSpace);
}

StatusOr<HeterSplit> split_by_device(const Program& main,
                                     const std::vector<std::string>& returned) {
  using namespace heter_split;
  HeterSplit split;
  split.trainer.emplace_back();
  Turns turns;
  std::string device;
  for (Op& op : main.root().ops()) {
    MILLRACE_ASSIGN_OR_RETURN(const bool on_worker, is_of_worker(op, turns, device));
    const int turn = turns.place(uses_of(op), on_worker);
    const auto stage = static_cast<size_t>(turn / 2);
    while (split.worker.size() < stage + (on_worker ? 1 : 0)) {
      split.worker.emplace_back();
      split.trainer.emplace_back();
    }
    (on_worker ? split.worker[stage].ops : split.trainer[stage]).push_back(&op);
  }
  move_stages_without_inputs(split);
  if (split.worker.empty())
    return InvalidArgument(
        "no op with inputs has an op_device other than a CPU, so there is nothing for heter "
        "workers");
  const llvm::StringMap<std::set<int>> readers = readers_of(split);
  llvm::StringSet<> wanted;
  for (const std::string& name : returned) wanted.insert(name);
  for (size_t i = 0; i < split.worker.size(); ++i) {
    find_outputs(split.worker[i], readers, static_cast<int>(2 * i + 1), wanted);
    split.worker[i].message = message_of(i, split.worker[i]);
  }
  MILLRACE_RETURN_IF_ERROR(check_returned(split, returned));
  return split;
}

}  // namespace millrace::transpiler
