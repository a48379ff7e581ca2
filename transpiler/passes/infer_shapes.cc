#include "ops/infer_shapes.h"

#include "framework/base/errors.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

class InferShapes final : public Pass {
 public:
  explicit InferShapes(const PassOptions& options) : skip_unknown_(options.flag("skip-unknown")) {}

  llvm::StringRef name() const override { return "infer-shapes"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op& op : block.ops()) {
        if (context.registry.find(op.type()) == nullptr) {
          if (skip_unknown_) continue;
          return Unimplemented("there is no shape inference for the unknown op type '{}'",
                               op.type().str())
              .at(op.location())
              .with_hint("infer-shapes{skip-unknown=true} uses the declared shapes there");
        }
        const std::vector<VarSpec> before = output_specs(op);
        MILLRACE_RETURN_IF_ERROR(ops::infer_op(context.registry, op));
        changed |= output_specs(op) != before;
      }
    }
    return changed;
  }

 private:
  static std::vector<VarSpec> output_specs(const Op& op) {
    std::vector<VarSpec> specs;
    for (const llvm::StringRef name : op.output_names()) {
      const Var* const var = op.block().find_var_recursive(name);
      if (var != nullptr) specs.push_back(var->spec());
    }
    return specs;
  }

  bool skip_unknown_;
};

}  // namespace

void add_passes_infer_shapes(PassRegistry& registry) {
  registry.add(PassInfo("infer-shapes",
                        "run shape inference op by op and write the shapes into the declarations")
                   .flag("skip-unknown", false, "leave outputs of unknown op types as declared")
                   .makes<InferShapes>());
}

}  // namespace millrace::transpiler
