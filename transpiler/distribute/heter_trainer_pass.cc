#include <llvm/ADT/StringSet.h>

#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/heter_split.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace heter_trainer_pass {
namespace {

// The call that has a heter worker run a stage.
void append_call(Block& block, const HeterStage& stage, const std::vector<std::string>& workers) {
  int32_t op_role = role::kForward;
  std::vector<std::string> role_vars;
  for (const Op* const op : stage.ops) {
    op_role |= role::of(*op) & role::kBackward;
    const auto vars = role::vars(*op);
    role_vars.insert(role_vars.end(), vars.begin(), vars.end());
  }
  Op& call = block.append_op("send_and_recv");
  call.set_input("X", stage.inputs)
      .set_output("Out", stage.outputs)
      .set_string("message_name", stage.message)
      .set_string("mode", "forward")
      .set_strings("send_var_name", stage.inputs)
      .set_strings("recv_var_name", stage.outputs)
      .set_strings("next_endpoints", workers)
      .set_int("trainer_id", 0);
  finish(call, op_role);
  if (!role_vars.empty()) call.set_strings("op_role_var", std::move(role_vars));
}

// Declarations of vars that only the erased ops have used.
void erase_unused(Program& program, const llvm::StringSet<>& used_before) {
  std::vector<std::string> keep;
  for (const Var& var : program.root().vars())
    if (!used_before.contains(var.name())) keep.push_back(var.name().str());
  erase_unmentioned_vars(program, keep, /*persistable=*/false);
}

class HeterTrainer final : public Pass {
 public:
  explicit HeterTrainer(const PassOptions& options)
      : workers_(options.strings("workers")), returned_(options.strings("returned")) {}

  [[nodiscard]] llvm::StringRef name() const override { return "heter-trainer"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    std::string list;
    for (const std::string& worker : workers_) list += (list.empty() ? "" : ",") + worker;
    MILLRACE_RETURN_IF_ERROR(split_endpoints(list, "workers").status());
    MILLRACE_ASSIGN_OR_RETURN(const HeterSplit split, split_by_device(program, returned_));
    Block& block = program.root();
    llvm::StringSet<> used;
    const std::vector<Op*> before = block.op_vector();
    for (const HeterStage& stage : split.worker) {
      for (const Op* const op : stage.ops) {
        for (const llvm::StringRef name : op->input_names()) used.insert(name);
        for (const llvm::StringRef name : op->output_names()) used.insert(name);
      }
    }
    for (size_t turn = 0; turn < split.trainer.size(); ++turn) {
      for (const Op* const op : split.trainer[turn]) drop_work_space(block.append_clone(*op));
      if (turn < split.worker.size()) append_call(block, split.worker[turn], workers_);
    }
    for (Op* const op : before) block.erase(*op);
    erase_unused(program, used);
    return true;
  }

 private:
  std::vector<std::string> workers_;
  std::vector<std::string> returned_;
};

}  // namespace
}  // namespace heter_trainer_pass

void add_distribute_heter_trainer_pass(PassRegistry& registry) {
  registry.add(PassInfo("heter-trainer",
                        "replace the ops whose op_device is no CPU by calls of heter workers, "
                        "which run them")
                   .strings("workers", "endpoints of the heter workers, host:port")
                   .required()
                   .strings("returned", "vars of heter workers that trainers receive to fetch them")
                   .makes<heter_trainer_pass::HeterTrainer>());
}

}  // namespace millrace::transpiler
