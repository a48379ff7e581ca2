#include <llvm/ADT/StringSet.h>

#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/heter_split.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/pass_registry.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace heter_worker_pass {
namespace {

// Values in block 0 arrive and leave with calls; they are not kept.
void declare_once(Block& block, const Block& from, llvm::StringRef name) {
  const Var* const var = from.find_var(name);
  if (var == nullptr || block.find_var(name) != nullptr) return;
  VarSpec spec = var->spec();
  spec.persistable = false;
  spec.is_parameter.reset();
  block.declare(name, std::move(spec));
}

// A block with the ops of a stage; it declares what only these use.
int32_t append_stage(Program& program, const Block& from, const HeterStage& stage) {
  Block& root = program.root();
  Block& block = program.add_block(0);
  for (const Op* const op : stage.ops) {
    Op& copy = block.append_clone(*op);
    drop_work_space(copy);
    for (const auto& names : {copy.input_names(), copy.output_names()}) {
      for (const llvm::StringRef name : names)
        if (root.find_var(name) == nullptr) declare_once(block, from, name);
    }
  }
  return block.index();
}

class HeterWorker final : public Pass {
 public:
  explicit HeterWorker(const PassOptions& options)
      : endpoint_(options.string("endpoint")),
        trainers_(options.integer("trainers")),
        worker_(options.integer("worker")),
        returned_(options.strings("returned")) {}

  [[nodiscard]] llvm::StringRef name() const override { return "heter-worker"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    MILLRACE_RETURN_IF_ERROR(split_endpoints(endpoint_, "endpoint").status());
    MILLRACE_ASSIGN_OR_RETURN(const HeterSplit split, split_by_device(program, returned_));
    const std::unique_ptr<Program> made = make(program, split);
    program.replace_with(*made);
    // the trainers hold all values
    if (context.startup != nullptr) context.startup->replace_with(*Program::create());
    return true;
  }

 private:
  [[nodiscard]] std::unique_ptr<Program> make(const Program& from, const HeterSplit& split) const {
    std::unique_ptr<Program> made = Program::create();
    made->set_version(from.has_version(), from.version());
    made->set_op_versions(from.has_op_versions(), from.op_versions().vec());
    Block& root = made->root();
    std::vector<std::string> inputs;
    for (const HeterStage& stage : split.worker) {
      for (const std::string& name : stage.inputs) {
        if (root.find_var(name) == nullptr) inputs.push_back(name);
        declare_once(root, from.root(), name);
      }
      for (const std::string& name : stage.outputs) declare_once(root, from.root(), name);
    }
    Op& serve = root.append_op("heter_listen_and_serv");
    std::vector<int32_t> blocks;
    std::vector<std::string> messages;
    for (const HeterStage& stage : split.worker) {
      blocks.push_back(append_stage(*made, from.root(), stage));
      messages.push_back(stage.message + ":" + std::to_string(blocks.back()));
    }
    serve.set_input("X", inputs)
        .set_attr("optimize_blocks", AttrValue::of_blocks(std::move(blocks)))
        .set_strings("message_to_block_id", std::move(messages))
        .set_string("endpoint", endpoint_)
        .set_int("fanin", static_cast<int32_t>(trainers_))
        .set_int("pserver_id", static_cast<int32_t>(worker_))
        .set_int("distributed_mode", 1);  // nothing waits for the calls of other trainers
    finish(serve, role::kRpc);
    return made;
  }

  std::string endpoint_;
  int64_t trainers_;
  int64_t worker_;
  std::vector<std::string> returned_;
};

}  // namespace
}  // namespace heter_worker_pass

void add_distribute_heter_worker_pass(PassRegistry& registry) {
  registry.add(PassInfo("heter-worker",
                        "replace a training program by that of a heter worker, which runs the ops "
                        "whose op_device is no CPU for trainers")
                   .string("endpoint", "", "endpoint of the worker, host:port")
                   .required()
                   .integer("trainers", 1, "trainers of the job")
                   .range(1, static_cast<double>(kMaxTrainers))
                   .integer("worker", 0, "number of the worker")
                   .range(0)
                   .strings("returned", "vars of heter workers that trainers receive to fetch them")
                   .makes<heter_worker_pass::HeterWorker>());
}

}  // namespace millrace::transpiler
