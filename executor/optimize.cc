#include "executor/optimize.h"

#include <llvm/ADT/StringRef.h>

#include "framework/op_attrs.h"
#include "ops/unread_attrs.h"
#include "ops/verify.h"
#include "transpiler/fusion/fake_quant.h"
#include "transpiler/register_all.h"

namespace millrace::executor {
namespace {

// In the order in which they run; all of them take the option `keep`.
constexpr const char* kForInference[] = {"fold-constants", "share-results",   "int8-products",
                                         "fuse-embedding", "join-embeddings", "fuse-conv",
                                         "int8-chains",    "fuse-patterns",   "fuse-attention",
                                         "join-moves",     "fuse-fc",         "fuse-elementwise"};
constexpr const char* kForTraining[] = {"fold-constants",  "share-results", "fuse-embedding",
                                        "join-embeddings", "fuse-patterns", "fuse-attention",
                                        "join-moves",      "fuse-norm",     "drop-shape-inputs",
                                        "share-gradients", "fuse-fc",       "accumulate-gradients",
                                        "fuse-elementwise"};

// The ops that these make have GPU kernels.
constexpr const char* kForGpuInference[] = {"fold-constants", "share-results", "fuse-conv"};
constexpr const char* kForGpuTraining[] = {"fold-constants", "share-results", "fuse-norm",
                                           "share-gradients"};

llvm::ArrayRef<const char*> fusing_passes(bool trains, bool for_gpu) {
  if (for_gpu) {
    return trains ? llvm::ArrayRef<const char*>(kForGpuTraining)
                  : llvm::ArrayRef<const char*>(kForGpuInference);
  }
  return trains ? llvm::ArrayRef<const char*>(kForTraining)
                : llvm::ArrayRef<const char*>(kForInference);
}

// True for a normalization with given statistics: it passes them on as outputs, which are the same
// vars.
bool passes_statistics_on(const Op& op) {
  if (op.type() != "batch_norm" && op.type() != "sync_batch_norm") return false;
  const bool given =
      get_attr_or(op, "use_global_stats", false) ||
      (get_attr_or(op, "is_test", false) && !get_attr_or(op, "trainable_statistics", false));
  return given && op.first_output("MeanOut") == op.first_input("Mean") &&
         op.first_output("VarianceOut") == op.first_input("Variance");
}

bool writes_persistable(const Program& program) {
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      if (!var.persistable() || var.kind() == VarKind::kFetchList) continue;
      for (const Block& user : program.blocks()) {
        for (const Op* const op : user.writers_of(var.name())) {
          if (!passes_statistics_on(*op) && !transpiler::writes_fixed_scales(*op)) return true;
        }
      }
    }
  }
  return false;
}

// True if BlockRunner will refuse the program for an attribute, which a pass might drop.
bool has_unread_attrs(const Program& program, const ops::OpRegistry& registry) {
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      const ops::OpDef* const def = registry.find(op.type());
      if (def != nullptr && !ops::check_attrs_are_read(*def, op).ok()) return true;
    }
  }
  return false;
}

}  // namespace

transpiler::PassManagerOptions pass_options(const Program& program, const ops::OpRegistry& registry,
                                            bool verify) {
  transpiler::PassManagerOptions options;
  options.check_changes = verify;
  if (verify && ops::check_program(registry, program).ok()) {
    options.verify = [&registry](const Program& result) {
      return ops::check_program(registry, result);
    };
  }
  return options;
}

transpiler::Pipeline optimization_pipeline(const Program& program,
                                           const std::vector<std::string>& keep,
                                           const OptimizeOptions& options) {
  transpiler::Pipeline pipeline;
  const auto add = [&](llvm::ArrayRef<const char*> passes) {
    for (const char* const pass : passes) {
      pipeline.steps.push_back({pass, {{"keep", keep}}});
      if (options.release_folded && llvm::StringRef(pass) == "fuse-conv")
        pipeline.steps.back().options.push_back({"release", "true"});
    }
  };
  if (options.fuse) add(fusing_passes(writes_persistable(program), options.for_gpu));
  if (options.fuse && options.merge_updates) add("merge-updates");
  if (options.fuse && options.split_gradients) add("split-gradients");
  if (options.bf16_products) add("lower-products");
  return pipeline;
}

StatusOr<bool> optimize(Program& program, const ops::OpRegistry& registry,
                        const std::vector<std::string>& keep, const OptimizeOptions& wanted) {
  if (has_unread_attrs(program, registry)) return false;
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  MILLRACE_ASSIGN_OR_RETURN(
      const transpiler::PassManager manager,
      transpiler::PassManager::create(passes, optimization_pipeline(program, keep, wanted)));
  transpiler::PassContext context(registry);
  MILLRACE_ASSIGN_OR_RETURN(
      const transpiler::PipelineReport report,
      manager.run(program, context, pass_options(program, registry, wanted.verify_passes)));
  return report.changed();
}

}  // namespace millrace::executor
