#include "executor/parallel/device_programs.h"

#include <algorithm>

#include <fmt/format.h>

#include "executor/optimize.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/op_attrs.h"
#include "framework/views/graph.h"
#include "ops/verify.h"
#include "transpiler/parallel/gradients.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::executor {
namespace {

bool is_inserted(const Op& op) {
  return op.type() == "exchange_begin" || op.type() == "exchange_end" ||
         op.type() == "shared_updates_end" || op.type() == "merge_gradient";
}

// The optimized program from which all device programs are made. Keeps gradients, because devices
// exchange them.
StatusOr<std::unique_ptr<Program>> optimized(const Program& given, const ops::OpRegistry& registry,
                                             const OptimizeOptions& options,
                                             std::vector<std::string> keep) {
  std::unique_ptr<Program> program = given.clone();
  using Grads = std::vector<transpiler::ParallelGrad>;
  MILLRACE_ASSIGN_OR_RETURN(const Grads before, transpiler::find_gradients(*program));
  for (const transpiler::ParallelGrad& grad : before) keep.push_back(grad.grad);
  for (std::string& name : transpiler::loss_gradients(*program)) keep.push_back(std::move(name));
  MILLRACE_ASSIGN_OR_RETURN(const bool changed, optimize(*program, registry, keep, options));
  if (!changed) return program;
  MILLRACE_ASSIGN_OR_RETURN(const Grads after, transpiler::find_gradients(*program));
  if (after.size() != before.size())
    return Internal("only {} of {} gradients are left after optimizing", after.size(),
                    before.size());
  return program;
}

bool is_rounded(const Op& op) {
  const AttrValue* const dtype = op.find_attr("mkldnn_data_type");
  return dtype != nullptr && dtype->kind() == AttrKind::kString && dtype->string() == "bfloat16";
}

Status write_dot(const std::string& path, const std::string& text) {
  return write_file_atomically(path, text, Replace::kYes);
}

// Writes one file with a graph per device.
Status write_graphs(const std::string& prefix, const Program& given, const Program& fused,
                    const std::vector<std::unique_ptr<Program>>& devices) {
  MILLRACE_RETURN_IF_ERROR(write_dot(prefix + "_original_graph", dot_view(given)));
  MILLRACE_RETURN_IF_ERROR(write_dot(prefix + "_fused_graph", dot_view(fused)));
  std::string text;
  for (size_t d = 0; d < devices.size(); ++d)
    text += fmt::format("// device {}, cpu, scope {}\n", d, d) + dot_view(*devices[d]);
  return write_dot(prefix + "_multi_devices_graph", text);
}

// Runs before fusion: a batch_norm that has become part of another op uses only the statistics of
// its own device.
StatusOr<std::unique_ptr<Program>> with_joint_statistics(const Program& given,
                                                         const ops::OpRegistry& registry,
                                                         const transpiler::PassRegistry& passes,
                                                         bool verify) {
  transpiler::Pipeline pipeline;
  pipeline.steps.push_back({"sync-batch-norm", {}});
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PassManager manager,
                            transpiler::PassManager::create(passes, std::move(pipeline)));
  transpiler::PassContext context(registry);
  std::unique_ptr<Program> program = given.clone();
  StatusOr<transpiler::PipelineReport> report =
      manager.run(*program, context, pass_options(given, registry, verify));
  if (!report.ok()) return std::move(report).status();
  return program;
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<Program>>> make_device_programs(
    const Program& given, const ops::OpRegistry& registry, const ParallelOptions& options,
    const std::vector<std::string>& keep, std::vector<std::string>& remarks) {
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  std::unique_ptr<Program> joint;
  if (options.build_strategy.sync_batch_norm) {
    MILLRACE_ASSIGN_OR_RETURN(joint,
                              with_joint_statistics(given, registry, passes, options.debug_memory));
  }
  const Program& program = joint == nullptr ? given : *joint;
  std::unique_ptr<Program> base;
  // GPUs round factors themselves
  const bool bf16_products = options.bf16_products && options.gpus.empty();
  if (options.optimize || bf16_products) {
    const OptimizeOptions wanted{.fuse = options.optimize,
                                 .for_gpu = !options.gpus.empty(),
                                 .bf16_products = bf16_products,
                                 .verify_passes = options.debug_memory};
    MILLRACE_ASSIGN_OR_RETURN(base, optimized(program, registry, wanted, keep));
  } else {
    base = program.clone();
  }
  if (bf16_products) {
    const auto ops = base->root().ops();
    remarks.push_back(fmt::format("the factors of {} products are rounded to bfloat16",
                                  std::count_if(ops.begin(), ops.end(), is_rounded)));
  }
  std::vector<std::unique_ptr<Program>> programs;
  for (int device = 0; device < options.devices; ++device) {
    MILLRACE_ASSIGN_OR_RETURN(
        const transpiler::PassManager manager,
        transpiler::PassManager::create(passes, device_pipeline(options, device, keep)));
    transpiler::PassContext context(registry);
    std::unique_ptr<Program> copy = base->clone();
    StatusOr<transpiler::PipelineReport> report =
        manager.run(*copy, context, pass_options(*copy, registry, options.debug_memory));
    if (!report.ok()) return std::move(report).status();
    if (device == 0) remarks.insert(remarks.end(), context.remarks.begin(), context.remarks.end());
    programs.push_back(std::move(copy));
  }
  if (!options.build_strategy.debug_graphviz_path.empty()) {
    MILLRACE_RETURN_IF_ERROR(
        write_graphs(options.build_strategy.debug_graphviz_path, program, *base, programs));
  }
  return programs;
}

int count_exchanges(const Program& program) {
  int count = 0;
  for (const Op& op : program.root().ops()) {
    if (op.type() == "exchange_begin")
      count = std::max(count, get_attr_or<int32_t>(op, "bucket", 0) + 1);
  }
  return count;
}

SharedVars shared_vars(const Program& program) {
  SharedVars result;
  for (const Op& op : program.root().ops()) {
    if (!op.has_attr("shared_update")) continue;
    ++result.updates;
    result.grads.insert(op.first_input("Grad").str());
    for (const llvm::StringRef name : op.output_names()) result.persistable.insert(name.str());
  }
  return result;
}

bool share_output(const Op& a, const Op& b) {
  const auto names = a.output_names();
  return std::any_of(names.begin(), names.end(),
                     [&](llvm::StringRef name) { return b.writes(name); });
}

// Passes keep the order of ops, so both lists are walked together.
int64_t given_index(const Program& given, const Program& of_device, int64_t op) {
  std::vector<const Op*> before;
  for (const Op& each : given.root().ops()) before.push_back(&each);
  size_t next = 0;
  int64_t index = 0;
  for (const Op& each : of_device.root().ops()) {
    if (is_inserted(each)) {
      if (index == op) return -1;
    } else {
      // an op created by optimizing corresponds to the last of the ops it replaces
      size_t found = next;
      while (found < before.size() && !share_output(*before[found], each)) ++found;
      if (found < before.size()) next = found + 1;
      if (index == op) return found < before.size() ? static_cast<int64_t>(found) : -1;
    }
    ++index;
  }
  return -1;
}

}  // namespace millrace::executor
