#include "transpiler/distribute/divide_updates.h"

#include <array>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "transpiler/distribute/optimize_readings.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr uint32_t kNoMember = UINT32_MAX;

// Ops whose result for a slice of rows is the slice of their result.
bool works_on_slices(llvm::StringRef type) {
  constexpr std::array<llvm::StringLiteral, 15> kTypes = {"sum",
                                                          "elementwise_add",
                                                          "elementwise_sub",
                                                          "elementwise_mul",
                                                          "scale",
                                                          "sign",
                                                          "abs",
                                                          "square",
                                                          "clip",
                                                          "assign",
                                                          "cast",
                                                          "fill_constant",
                                                          "lookup_table",
                                                          "extract_rows",
                                                          "merge_selected_rows"};
  return llvm::is_contained(kTypes, type);
}

std::string quoted(llvm::StringRef name) {
  return "'" + name.str() + "'";
}

class Divider {
 public:
  Divider(Block& block, const DivideOptions& options)
      : options_(options), readings_(block), assigned_(readings_.members().size()) {}

  StatusOr<OptimizePart> run() {
    MILLRACE_RETURN_IF_ERROR(find_updates());
    MILLRACE_RETURN_IF_ERROR(keep_marked_clipping());
    do {
      changed_ = false;
      for (Assignment& assignment : assigned_) {
        if (!assignment.is_update) assignment.runs_with = kNoMember;
      }
      for (const uint32_t update : updates_) MILLRACE_RETURN_IF_ERROR(follow_gradient(update));
    } while (changed_);
    MILLRACE_RETURN_IF_ERROR(assign_companions());
    for (const uint32_t update : updates_) MILLRACE_RETURN_IF_ERROR(check_update(update));
    MILLRACE_RETURN_IF_ERROR(check_trainer_readers());
    return result();
  }

 private:
  using Member = OptimizeMember;

  // Where an op runs.
  struct Assignment {
    bool is_update = false;
    bool on_trainer = false;
    uint32_t runs_with = kNoMember;  // the update on whose server the op runs
    // The next two are for updates only.
    Reading gradient;  // the value that trainers send
    bool has_server_ops = false;
  };

  const Member& member(uint32_t m) const { return readings_.members()[m]; }
  // The member that wrote the value; kNoMember: state, a schedule, or an op of the trainer.
  uint32_t writer(const Reading& reading) const { return readings_.index_of(reading.writer); }
  bool from_trainer(const Reading& reading) const {
    const uint32_t m = writer(reading);
    if (m != kNoMember) return assigned_[m].on_trainer;
    return reading.writer != nullptr && !role::is_lr_op(*reading.writer);
  }
  llvm::StringRef param_of(uint32_t update) const {
    return member(update).op->first_input("Param");
  }

  Status find_updates() {
    for (uint32_t m = 0; m < assigned_.size(); ++m) {
      const Op& op = *member(m).op;
      if (!role::is_optimizer(op)) continue;
      if (role::vars(op).size() < 2) return without_role_var(op);
      const llvm::StringRef param = op.first_input("Param");
      if (!update_of_param_.try_emplace(param, m).second) {
        return Unimplemented(
                   "param {} is updated twice in a step; servers update each param by one op",
                   quoted(param))
            .at(op.location());
      }
      const llvm::StringRef written = op.first_output("ParamOut");
      if (!written.empty() && written != param) {
        return Unimplemented("the update of param {} writes {}; servers update params in place",
                             quoted(param), quoted(written))
            .at(op.location());
      }
      if (op.first_input("Grad").empty()) {
        return InvalidProgram("the update of param {} reads no gradient", quoted(param))
            .at(op.location());
      }
      assigned_[m].is_update = true;
      assigned_[m].runs_with = m;
      updates_.push_back(m);
    }
    return Ok();
  }

  static Status without_role_var(const Op& op) {
    const size_t count = role::vars(op).size();
    if (count == 0 && !role::is_optimizer(op)) {
      return InvalidProgram(
                 "op_role_var of an optimize op is empty: cannot determine which server runs it")
          .at(op.location());
    }
    return InvalidProgram(
               "op_role_var of an optimize op needs a param and its gradient (found {} names)",
               count)
        .at(op.location());
  }

  // The original recognizes clipping of its last releases by this scope.
  Status keep_marked_clipping() {
    for (uint32_t m = 0; m < assigned_.size(); ++m) {
      const AttrValue* const scope = member(m).op->find_attr("op_namescope");
      if (scope == nullptr || scope->kind() != AttrKind::kString) continue;
      if (!assigned_[m].is_update && scope->string().contains("@CLIP"))
        MILLRACE_RETURN_IF_ERROR(keep_on_trainer(m));
    }
    return Ok();
  }

  // Keeps an op and the ops that it needs on the trainer.
  Status keep_on_trainer(uint32_t first) {
    std::vector<uint32_t> open = {first};
    while (!open.empty()) {
      const uint32_t m = open.back();
      open.pop_back();
      if (assigned_[m].on_trainer) continue;
      if (assigned_[m].is_update) {
        return Unimplemented(
                   "it needs what '{}' computes of param {}, which is updated on a server, and "
                   "gradients, which the trainer has",
                   member(m).op->type().str(), quoted(param_of(m)))
            .at(member(first).op->location());
      }
      assigned_[m].on_trainer = true;
      assigned_[m].runs_with = kNoMember;
      changed_ = true;
      for (const Reading& reading : member(m).readings) {
        if (writer(reading) != kNoMember) open.push_back(writer(reading));
      }
    }
    return Ok();
  }

  // Walks back from the gradient of an update to the value that trainers send.
  Status follow_gradient(uint32_t update) {
    Assignment& assignment = assigned_[update];
    assignment.has_server_ops = false;
    Reading at = member(update).reading_of(member(update).op->first_input("Grad"));
    while (true) {
      const uint32_t m = writer(at);
      if (m == kNoMember || assigned_[m].on_trainer) break;
      if (assigned_[m].is_update) {
        return Unimplemented("the gradient {} is written by another update, '{}'", quoted(at.var),
                             member(m).op->type().str())
            .at(member(update).op->location());
      }
      std::vector<uint32_t> needed;
      const Reading* const gradient = gradient_below(m, update, needed);
      if (gradient == nullptr) {
        if (!options_.clip_on_trainer) return refuse_on_server(m, update);
        MILLRACE_RETURN_IF_ERROR(keep_on_trainer(m));
        break;
      }
      for (const uint32_t op : needed) assigned_[op].runs_with = update;
      assignment.has_server_ops = true;
      at = *gradient;
    }
    assignment.gradient = at;
    return Ok();
  }

  Status refuse_on_server(uint32_t m, uint32_t update) const {
    return Unimplemented(
               "clip_on_trainer is false, but the server of param {} cannot run '{}', which is "
               "between gradient and update: it is neither clipping by value nor regularization",
               quoted(param_of(update)), member(m).op->type().str())
        .at(member(m).op->location());
  }

  // If a server can run the op on a slice of the gradient, returns the gradient that the op reads,
  // and adds the ops that must run there with it. Null: the op stays on the trainer.
  const Reading* gradient_below(uint32_t m, uint32_t update, std::vector<uint32_t>& needed) const {
    const Member& op = member(m);
    if (!works_on_slices(op.op->type()) || op.outputs != 1 || runs_with_another(m, update))
      return nullptr;
    needed.push_back(m);
    if (!options_.clip_on_trainer && op.readings.size() == 1 && op.tainted &&
        (op.op->type() == "clip" || op.op->type() == "scale"))
      return &op.readings[0];
    if (!options_.decay_on_servers || op.readings.size() != 2 ||
        (op.op->type() != "sum" && op.op->type() != "elementwise_add"))
      return nullptr;
    const Reading* const gradient = gradient_of_sum(op, update);
    if (gradient == nullptr) return nullptr;
    const Reading& term = op.readings[gradient == op.readings.data() ? 1 : 0];
    return is_term(term, *gradient, update, needed) ? gradient : nullptr;
  }

  bool runs_with_another(uint32_t m, uint32_t update) const {
    return assigned_[m].runs_with != kNoMember && assigned_[m].runs_with != update;
  }

  // The summand that does not depend on the param.
  const Reading* gradient_of_sum(const Member& sum, uint32_t update) const {
    const std::array<bool, 2> of_param = {made_of_param(sum.readings[0], update),
                                          made_of_param(sum.readings[1], update)};
    if (of_param[0] != of_param[1]) return &sum.readings[of_param[0] ? 1 : 0];
    const std::array<bool, 2> tainted = {readings_.is_tainted(sum.readings[0]),
                                         readings_.is_tainted(sum.readings[1])};
    if (!of_param[0] || tainted[0] == tainted[1]) return nullptr;
    return &sum.readings[tainted[0] ? 0 : 1];
  }

  bool made_of_param(const Reading& reading, uint32_t update) const {
    const llvm::StringRef param = param_of(update);
    if (reading.var == param) return true;
    return any_below(reading, [&](const Reading& below) { return below.var == param; });
  }

  // True if the predicate holds for any value that is read to compute the given one.
  template <typename Predicate>
  bool any_below(const Reading& reading, Predicate holds) const {
    llvm::DenseSet<uint32_t> seen;
    std::vector<uint32_t> open;
    const auto push = [&](const Reading& r) {
      const uint32_t m = writer(r);
      if (m != kNoMember && seen.insert(m).second) open.push_back(m);
    };
    push(reading);
    while (!open.empty()) {
      const uint32_t m = open.back();
      open.pop_back();
      for (const Reading& below : member(m).readings) {
        if (holds(below)) return true;
        push(below);
      }
    }
    return false;
  }

  // True if a server can compute the term from the param, from state, and from the gradient that
  // the term is added to (rows of sparse gradients).
  bool is_term(const Reading& term, const Reading& gradient, uint32_t update,
               std::vector<uint32_t>& needed) const {
    std::vector<Reading> open = {term};
    llvm::DenseSet<uint32_t> seen;
    while (!open.empty()) {
      const Reading reading = open.back();
      open.pop_back();
      if (reading.var == gradient.var && reading.writer == gradient.writer) continue;
      if (from_trainer(reading)) return false;
      const uint32_t m = writer(reading);
      if (m == kNoMember || !seen.insert(m).second) continue;
      if (assigned_[m].is_update || runs_with_another(m, update) ||
          !works_on_slices(member(m).op->type()))
        return false;
      needed.push_back(m);
      open.insert(open.end(), member(m).readings.begin(), member(m).readings.end());
    }
    return true;
  }

  // Assigns ops that no update needs: averages of params, powers of decay rates.
  Status assign_companions() {
    for (uint32_t m = 0; m < assigned_.size(); ++m) {
      if (assigned_[m].on_trainer || assigned_[m].runs_with != kNoMember) continue;
      const Op& op = *member(m).op;
      if (role::vars(op).size() < 2) return without_role_var(op);
      const auto update = update_of_param_.find(role::vars(op)[0]);
      if (update != update_of_param_.end() && fits(m, update->second)) {
        assigned_[m].runs_with = update->second;
        continue;
      }
      // No server holds its param, or that server lacks an input.
      const auto* const there = llvm::find_if(member(m).readings, [&](const Reading& reading) {
        return writer(reading) != kNoMember && !assigned_[writer(reading)].on_trainer;
      });
      if (there != member(m).readings.end()) {
        return Unimplemented(
                   "it reads {}, which '{}' computes on a server, and other values that this "
                   "server does not have",
                   quoted(there->var), there->writer->type().str())
            .at(op.location());
      }
      assigned_[m].on_trainer = true;
    }
    return Ok();
  }

  // True if the server of the update has all inputs of the op.
  bool fits(uint32_t m, uint32_t update) const {
    return llvm::all_of(member(m).readings,
                        [&](const Reading& reading) { return has(update, reading); });
  }

  bool has(uint32_t update, const Reading& reading) const {
    const Reading& sent = assigned_[update].gradient;
    if (reading.var == sent.var && reading.writer == sent.writer) return true;
    if (from_trainer(reading)) return false;
    const uint32_t m = writer(reading);
    return m == kNoMember || assigned_[m].runs_with == update;
  }

  Status check_update(uint32_t update) const {
    for (const Reading& reading : member(update).readings) {
      if (has(update, reading)) continue;
      return Unimplemented(
                 "the update of param {} reads {}, which '{}' computes somewhere else than on the "
                 "param's server",
                 quoted(param_of(update)), quoted(reading.var), reading.writer->type().str())
          .at(member(update).op->location());
    }
    return Ok();
  }

  // No op on the trainer may need a value that only servers compute.
  Status check_trainer_readers() const {
    for (const auto& [op, reading] : readings_.outside_readers()) {
      const uint32_t m = writer(reading);
      if (m != kNoMember && !assigned_[m].on_trainer) {
        return Unimplemented(
                   "it reads {} after '{}', which runs on a server: the trainer gets the new value "
                   "only in the next step",
                   quoted(reading.var), reading.writer->type().str())
            .at(op->location());
      }
      if (m == kNoMember && role::is_lr_op(*op) && from_trainer(reading)) {
        return Unimplemented(
                   "it belongs to the schedule, which servers compute, but reads {}, which '{}' "
                   "computes on the trainer",
                   quoted(reading.var), reading.writer->type().str())
            .at(op->location());
      }
    }
    return Ok();
  }

  VarKind kind_of(const Reading& reading) const {
    // Ops that map selected rows to selected rows; programs often declare their outputs as dense.
    constexpr std::array<llvm::StringLiteral, 9> kKeepRows = {
        "clip",   "clip_by_norm",        "scale",           "cast",
        "assign", "merge_selected_rows", "elementwise_mul", "elementwise_div",
        "sum"};
    const Block& block = member(0).op->block();
    const auto declared = [&](llvm::StringRef name) {
      const Var* const var = block.find_var(name);
      return var == nullptr ? VarKind::kLodTensor : var->kind();
    };
    Reading at = reading;
    while (true) {
      const uint32_t m = writer(at);
      if (m == kNoMember || !llvm::is_contained(kKeepRows, member(m).op->type())) break;
      const Op& op = *member(m).op;
      if (op.type() == "sum" && member(m).readings.size() != 1) break;
      at = member(m).reading_of(op.first_input("X"));
    }
    return declared(at.var) == VarKind::kSelectedRows ? VarKind::kSelectedRows
                                                      : declared(reading.var);
  }

  OptimizePart result() const {
    OptimizePart part;
    for (uint32_t m = 0; m < assigned_.size(); ++m) {
      if (assigned_[m].on_trainer) {
        part.trainer.push_back(member(m).op);
      } else {
        part.server.push_back({member(m).op, param_of(assigned_[m].runs_with).str()});
      }
    }
    for (const uint32_t update : updates_) {
      const Assignment& assignment = assigned_[update];
      part.updates[param_of(update)] = {.update = member(update).op,
                                        .gradient = assignment.gradient.var.str(),
                                        .kind = kind_of(assignment.gradient),
                                        .has_server_ops = assignment.has_server_ops};
    }
    return part;
  }

  const DivideOptions& options_;
  const OptimizeReadings readings_;
  std::vector<Assignment> assigned_;
  std::vector<uint32_t> updates_;
  llvm::StringMap<uint32_t> update_of_param_;
  bool changed_ = false;
};

}  // namespace

StatusOr<OptimizePart> divide_updates(Block& block, const DivideOptions& options) {
  MILLRACE_RETURN_IF_ERROR(role::check_updates_in_block_0(block.program()));
  return Divider(block, options).run();
}

}  // namespace millrace::transpiler
