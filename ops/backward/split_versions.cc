#include <algorithm>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

using NameMap = std::map<std::string, std::string>;
using Strings = std::vector<std::string>;

// The names under which a block finds vars when it begins and must leave them when it ends. Vars of
// enclosing blocks that are not listed keep their names.
struct Interface {
  NameMap entry;
  NameMap exit;
  bool is_loop = false;  // the block is the body of a loop
};

// One op that reads or writes a var.
struct Use {
  Op* op;
  bool reads;
  bool writes;
  bool is_read_back;  // in a loop: the gradient of the op reads the value that it writes
};

bool is_plain(const Op& op) {
  return block_kind(op) == BlockKind::kNone;
}

// Ops whose gradients do not read the output of the op.
bool keeps_no_output(const Op& op) {
  return op.type() == "assign" || op.type() == "fill_constant" ||
         op.type() == "fill_constant_batch_size_like" || op.type() == "fill_any_like";
}

// The ops that read and write one var of a block, in block order.
class History {
 public:
  History(const Block& block, const Interface& interface, const std::string& name) : name_(name) {
    const bool is_outer = block.find_var(name) == nullptr;
    const auto find = [&](const NameMap& names) {
      const auto found = names.find(name);
      return found != names.end() ? found->second : is_outer ? name : std::string();
    };
    entry_ = find(interface.entry);
    exit_ = find(interface.exit);
    is_root_ = block.index() == 0;
    is_loop_ = interface.is_loop;
  }

  void add(const Use& use) {
    if (use.reads && last_write_ == 0 && !is_plain(*use.op)) is_entry_read_inside_ = true;
    uses_.push_back(use);
    if (use.writes) last_write_ = uses_.size();
  }

  // An op reads the value that the var has when the block begins.
  [[nodiscard]] bool is_read_first() const { return uses_.front().reads; }
  // In block 0: such a var is fed or is in the scope.
  [[nodiscard]] bool is_given() const { return is_root_ && is_read_first(); }
  [[nodiscard]] Op& first_user() const { return *uses_.front().op; }
  // Name of the var when the block begins; empty: it has no value then.
  [[nodiscard]] const std::string& entry() const { return entry_; }
  // Name of the var when the block ends; empty: no op reads it after the block.
  [[nodiscard]] const std::string& exit() const { return last_write_ == 0 ? none_ : exit_; }
  [[nodiscard]] bool is_last_write(const Op& op) const {
    return last_write_ > 0 && uses_[last_write_ - 1].op == &op;
  }
  [[nodiscard]] bool is_read_in_the_end() const { return last_write_ < uses_.size(); }
  // True if the value that an iteration leaves needs another name than the one that it finds: the
  // executor keeps the latter, and the gradient of the last op that writes the var reads the
  // former.
  [[nodiscard]] bool leaves_apart() const {
    return is_carried() && uses_[last_write_ - 1].is_read_back;
  }
  // True if the value that an iteration finds needs a copy: the gradient of an op with a sub-block
  // adds to the gradient of the value that the iteration leaves, where both have one name.
  [[nodiscard]] bool begins_apart() const { return is_carried() && is_entry_read_inside_; }

  // True if a gradient op would find another value under the name than its forward op did, or the
  // gradient of another value.
  [[nodiscard]] bool needs_split() const {
    if (!entry_.empty() && entry_ != name_) return true;
    if (last_write_ == 0) return false;
    if (!exit_.empty() && (exit_ != name_ || is_read_in_the_end())) return true;
    if (leaves_apart() || begins_apart()) return true;
    if (is_left_to_branches()) return false;
    const Use* previous = nullptr;  // last write so far
    bool is_read = false;           // read by an earlier op
    for (const Use& use : uses_) {
      if (use.writes && overwrites(use, previous, is_read)) return true;
      is_read = is_read || use.reads;
      if (use.writes) previous = &use;
    }
    return false;
  }

 private:
  // True for a var outside of a loop that its body overwrites.
  [[nodiscard]] bool is_carried() const {
    return is_loop_ && last_write_ > 0 && !entry_.empty() && !exit_.empty();
  }

  // True for the cases of a switch: only one of them writes the var, which has no value before.
  [[nodiscard]] bool is_left_to_branches() const {
    std::vector<const Op*> branches;
    for (size_t i = 0; i < last_write_; ++i) {
      if (uses_[i].reads || block_kind(*uses_[i].op) != BlockKind::kBranch) return false;
      branches.push_back(uses_[i].op);
    }
    return entry_.empty() && exclude_each_other(branches);
  }

  [[nodiscard]] bool overwrites(const Use& use, const Use* previous, bool is_read) const {
    const BlockKind kind = block_kind(*use.op);
    const bool starts = !entry_.empty() || is_given();
    if (kind == BlockKind::kLoop) {
      if (previous == nullptr) return starts;
      // a loop that does not read the var does not end the gradient of the earlier value
      const bool is_passed_on = !use.reads && previous->op->type() == "assign";
      return is_read || is_passed_on || !keeps_no_output(*previous->op);
    }
    if (previous != nullptr) return true;
    if (kind == BlockKind::kBranch) return starts;
    return use.reads || (starts && exit_.empty());
  }

  std::string name_;
  std::string entry_;
  std::string exit_;
  std::string none_;
  bool is_root_ = false;
  bool is_loop_ = false;
  bool is_entry_read_inside_ = false;  // an op with a sub-block reads the value at the beginning
  std::vector<Use> uses_;
  size_t last_write_ = 0;  // index in uses_ plus 1; 0: no write
};

class Splitter {
 public:
  Splitter(const OpRegistry& registry, Program& program, llvm::StringRef loss,
           std::vector<Status>* warnings)
      : registry_(registry),
        program_(program),
        wanted_(names_leading_to(program, loss)),
        warnings_(warnings) {}

  void run() {
    for (const Block& block : program_.blocks())
      for (const Op& op : block.ops()) note_excluded(op);
    split(program_.root(), {});
  }

 private:
  // Excludes counters, and vars written by ops with a sub-block that cannot be rewritten.
  void note_excluded(const Op& op) {
    if (op.type() == "increment") {
      for (const llvm::StringRef name : op.output_names())
        if (op.reads(name)) excluded_.insert(name.str());
    }
    const BlockKind kind = block_kind(op);
    if (kind != BlockKind::kOther && kind != BlockKind::kRecurrent) return;
    for (const std::string& name : touched_by(op).writes) {
      if (kind == BlockKind::kRecurrent && op.writes(name)) continue;
      const Var* const var = op.block().find_var_recursive(name);
      if (is_eligible(var) && !op.block().writers_of(name).empty() &&
          op.block().first_writer(name) != &op && warnings_ != nullptr)
        warnings_->push_back(
            InvalidProgram("'{}', which other ops also write, is overwritten in a block without a "
                           "scalar condition; its gradients may be wrong, as in the original",
                           name)
                .at(op.location()));
      excluded_.insert(name);
    }
  }

  [[nodiscard]] bool is_eligible(const Var* var) const {
    if (var == nullptr || var->persistable() || !is_dense_float(*var)) return false;
    const std::string name = var->name().str();
    return wanted_.contains(name) && !excluded_.contains(name) && !is_grad_name(name);
  }

  // ---- one block

  // State of split() for one block.
  struct Frame {
    Block& block;
    std::map<std::string, History> histories;  // of vars that are split
    NameMap current;                           // var to the name of its current value
  };

  // Returns the targets of the assigns that were added at the end of the block, with their sources.
  NameMap split(Block& block, const Interface& interface) {
    Frame frame{block, histories_of(block, interface), {}};
    const std::vector<Op*> before = block.op_vector();  // without the ops that start() inserts
    for (const auto& [name, history] : frame.histories) start(frame, history, name);
    for (Op* const op : before)
      if (op->type() != "feed") rewrite(frame, *op);
    NameMap copied;
    for (const auto& [name, history] : frame.histories) {
      if (history.exit().empty() || frame.current[name] == history.exit()) continue;
      insert_assign(block, nullptr, frame.current[name], history.exit());
      copied[history.exit()] = frame.current[name];
    }
    return copied;
  }

  void start(Frame& frame, const History& history, const std::string& name) {
    if (!history.entry().empty()) frame.current[name] = history.entry();
    if (!history.is_given() && !history.begins_apart()) return;
    std::string made = new_version(frame.block, name);
    insert_assign(frame.block, &history.first_user(), history.is_given() ? name : history.entry(),
                  made);
    frame.current[name] = std::move(made);
  }

  std::string new_version(Block& block, const std::string& name) {
    std::string made = declare_version(block, name);
    wanted_.insert(made);
    return made;
  }

  std::map<std::string, History> histories_of(Block& block, const Interface& interface) {
    std::map<std::string, History> histories;
    for (Op& op : block.ops()) {
      if (op.type() == "feed") continue;
      const Touched touched = touched_by(op);
      Names names = touched.reads;
      names.insert(touched.writes.begin(), touched.writes.end());
      for (const std::string& name : names) {
        if (!is_eligible(block.find_var_recursive(name))) continue;
        const auto at = histories.try_emplace(name, block, interface, name).first;
        const bool writes = touched.writes.contains(name);
        at->second.add({&op, touched.reads.contains(name), writes,
                        writes && interface.is_loop && is_read_back(op, name)});
      }
    }
    std::erase_if(histories, [](const auto& item) { return !item.second.needs_split(); });
    return histories;
  }

  [[nodiscard]] bool is_read_back(const Op& op, const std::string& name) const {
    if (!is_plain(op)) return false;
    const auto made =
        make_grad_ops(registry_, GradContext(op, [](llvm::StringRef) { return true; }));
    if (!made.ok()) return false;
    return llvm::any_of(*made, [&](const GradOp& grad) {
      return llvm::any_of(grad.inputs,
                          [&](const auto& slot) { return llvm::is_contained(slot.second, name); });
    });
  }

  void rewrite(Frame& frame, Op& op) {
    const Touched touched = touched_by(op);
    const Names unlisted = reads_unlisted(op);
    Interface inside;
    std::vector<Choice> choices;
    for (const auto& [name, history] : frame.histories) {
      const auto found = frame.current.find(name);
      const std::string before = found == frame.current.end() ? "" : found->second;
      if (!touched.writes.contains(name)) {
        if (touched.reads.contains(name) && !before.empty() && before != name)
          rename_deep(op, name, before, /*writes=*/false);
        continue;
      }
      const std::string after = next_name(frame, history, op, name, before);
      switch (block_kind(op)) {
        case BlockKind::kLoop:
          carry(op, name, before, after);
          break;
        case BlockKind::kBranch:
          choices.push_back(branch_off(op, name, before, after, inside));
          break;
        case BlockKind::kRecurrent:
          replace(op, name, before, after);
          break;
        default:
          if (!before.empty()) op.replace_input(name, before);
          op.replace_output(name, after);
      }
      frame.current[name] = after;
    }
    enter(op, std::move(inside));
    list_reads(op, unlisted);
    std::erase_if(choices, [](const Choice& choice) { return choice.before.empty(); });
    if (!choices.empty()) choose(op, choices);
  }

  // The name for the value that an op writes.
  std::string next_name(const Frame& frame, const History& history, const Op& op,
                        const std::string& name, const std::string& before) {
    const bool keeps_name =
        history.is_last_write(op) &&
        (history.exit().empty() ? history.entry().empty() : !history.is_read_in_the_end());
    const std::string& last = history.exit().empty() ? name : history.exit();
    // not in place: the executor keeps the value that a var has when an iteration begins. The
    // gradient of a loop replaces that of its var, to which the first readers of the block add.
    const bool is_in_place = (last == before && (op.reads(name) || !is_plain(op))) ||
                             (last == history.entry() && history.leaves_apart()) ||
                             (last == history.entry() && block_kind(op) == BlockKind::kLoop);
    return keeps_name && !is_in_place ? last : new_version(frame.block, name);
  }

  // Makes a loop work on a separate var, which is initialized with a copy.
  static void carry(Op& loop, const std::string& name, const std::string& before,
                    const std::string& after) {
    if (after != name) rename_deep(loop, name, after, /*writes=*/true);
    if (before.empty() || before == after) return;
    insert_assign(loop.block(), &loop, before, after);
    auto x = loop.input("X");
    if (llvm::is_contained(x, after)) return;
    x.push_back(after);
    loop.set_input("X", llvm::ArrayRef<llvm::StringRef>(x));
  }

  // Outputs of a recurrence. An initial state of the same name is the earlier value.
  static void replace(Op& recurrent, const std::string& name, const std::string& before,
                      const std::string& after) {
    const auto initial = recurrent.input("initial_states");
    Strings states(initial.begin(), initial.end());
    const bool is_state = !before.empty() && llvm::is_contained(states, name);
    if (after != name) rename_deep(recurrent, name, after, /*writes=*/true);
    if (!is_state) return;
    std::replace(states.begin(), states.end(), name, before);
    recurrent.set_input("initial_states", llvm::ArrayRef<std::string>(states));
  }

  // A value that a branch overwrites.
  struct Choice {
    std::string before;
    std::string taken;
    std::string after;
  };

  Choice branch_off(Op& branch, const std::string& name, const std::string& before,
                    const std::string& after, Interface& inside) {
    Choice choice{before, after, after};
    if (!before.empty()) {
      choice.taken = new_version(branch.block(), name);
      branch.replace_input(name, before);
      inside.entry[name] = before;
    }
    branch.replace_output(name, choice.taken);
    inside.exit[name] = choice.taken;
    return choice;
  }

  void enter(Op& op, Interface inside) {
    const BlockKind kind = block_kind(op);
    if (kind == BlockKind::kNone || kind == BlockKind::kOther) return;
    Block& body = program_.block(static_cast<size_t>(sub_block_of(op)));
    inside.is_loop = kind == BlockKind::kLoop;
    auto states = get_attr_or<Strings>(op, "states", {});
    if (kind == BlockKind::kRecurrent) {
      for (const llvm::StringRef name : op.input("inputs")) inside.entry[name.str()] = name.str();
      for (const std::string& name : get_attr_or<Strings>(op, "ex_states", {}))
        inside.entry[name] = name;
      for (const llvm::StringRef name : op.output("outputs")) inside.exit[name.str()] = name.str();
      for (const std::string& name : states) inside.exit[name] = name;
    }
    const NameMap copied = split(body, inside);
    if (kind != BlockKind::kRecurrent) return;
    // If ops of the block read a state, the gradient from the next time step needs a separate name.
    // This holds for a state that is also an output (which need not be read after the recurrence),
    // and for a state that no op writes, which is an input or another state.
    for (std::string& state : states) {
      if (!is_eligible(body.find_var_recursive(state))) continue;
      const auto found = copied.find(state);
      if (found == copied.end() && !is_read_only(body, state)) continue;
      const std::string made = new_version(body, state);
      insert_assign(body, nullptr, found == copied.end() ? state : found->second, made);
      state = made;
    }
    if (!states.empty() && states != get_attr_or<Strings>(op, "states", {}))
      op.set_strings("states", std::move(states));
  }

  // Outer vars that the sub-block of an op reads and that are not among the inputs of the op.
  static Names reads_unlisted(const Op& op) {
    Names names;
    if (is_plain(op)) return names;
    for (const std::string& name : touched_by(op).reads)
      if (!op.reads(name)) names.insert(name);
    return names;
  }

  // Adds new reads of the sub-block to the op's inputs: a rewritten branch in it may now read a var
  // that it only wrote before. A loop also gets the vars that it carries: programs do not list a
  // var that a branch of the body writes before an op of the body reads it.
  static void list_reads(Op& op, const Names& before) {
    if (is_plain(op) || block_kind(op) == BlockKind::kOther) return;
    const char* const slot = op.type() == "while"               ? "X"
                             : op.type() == "conditional_block" ? "Input"
                                                                : "parameters";
    auto names = op.input(slot);
    const Names now = reads_unlisted(op);
    const size_t count = names.size();
    for (const std::string& name : now) {
      const Var* const var = op.block().find_var_recursive(name);
      if (var != nullptr && (!before.contains(name) || keeps_earlier(op, *var)))
        names.push_back(name);
    }
    if (names.size() != count) op.set_input(slot, llvm::ArrayRef<llvm::StringRef>(names));
  }

  // True for a var that the op writes, but not whenever it runs, or not wholly.
  static bool keeps_earlier(const Op& op, const Var& var) {
    if (!op.writes(var.name())) return false;
    if (var.kind() == VarKind::kLodTensorArray) return block_kind(op) == BlockKind::kBranch;
    return block_kind(op) == BlockKind::kLoop && is_dense_float(var);
  }

  static bool is_read_only(const Block& body, const std::string& name) {
    bool is_read = false;
    for (const Op& op : body.ops()) {
      const Touched touched = touched_by(op);
      if (touched.writes.contains(name)) return false;
      is_read = is_read || touched.reads.contains(name);
    }
    return is_read;
  }

  // Adds a second branch that keeps the old values, and a select_input for each var.
  void choose(Op& branch, const std::vector<Choice>& choices) {
    Block& block = branch.block();
    const std::string condition = branch.first_input("Cond").str();
    Op* const behind = block.next(branch);
    const auto declare = [&](VarSpec spec) {
      std::string name = declare_version(block, condition);
      spec.stop_gradient = true;
      block.declare(name, std::move(spec));
      return name;
    };
    const std::string otherwise = declare(VarSpec::tensor(DType::kBool, {1}));
    const std::string mask = declare(VarSpec::tensor(DType::kInt32, {1}));
    const std::string scope = declare(VarSpec::shapeless(VarKind::kStepScopes));
    block.insert_before(&branch, "logical_not")
        .set_input("X", condition)
        .set_output("Out", otherwise)
        .set_int("op_role", 0);
    block.insert_before(&branch, "cast")
        .set_input("X", condition)
        .set_output("Out", mask)
        .set_int("in_dtype", static_cast<int32_t>(DType::kBool))
        .set_int("out_dtype", static_cast<int32_t>(DType::kInt32))
        .set_int("op_role", 0);
    Block& body = program_.add_block(block.index());
    Op& keeps = block.insert_before(behind, "conditional_block");
    Strings before;
    Strings kept;
    for (const Choice& choice : choices) {
      kept.push_back(new_version(block, choice.after));
      if (!llvm::is_contained(before, choice.before)) before.push_back(choice.before);
      insert_assign(body, nullptr, choice.before, kept.back());
      block.insert_before(behind, "select_input")
          .set_input("X", llvm::ArrayRef<std::string>({kept.back(), choice.taken}))
          .set_input("Mask", mask)
          .set_output("Out", choice.after)
          .set_int("op_role", 0);
    }
    keeps.set_input("Cond", otherwise)
        .set_input("Input", llvm::ArrayRef<std::string>(before))
        .set_output("Out", llvm::ArrayRef<std::string>(kept))
        .set_output("Scope", scope)
        .set_attr("sub_block", AttrValue::of_block(body.index()))
        .set_bool("is_scalar_condition", true)
        .set_strings("skip_eager_deletion_vars", {})
        .set_int("op_role", 0);
  }

  const OpRegistry& registry_;
  Program& program_;
  Names wanted_;
  std::vector<Status>* warnings_;
  Names excluded_;
};

}  // namespace

void split_versions(const OpRegistry& registry, Program& program, llvm::StringRef loss,
                    std::vector<Status>* warnings) {
  Splitter(registry, program, loss, warnings).run();
}

}  // namespace millrace::ops::backward
