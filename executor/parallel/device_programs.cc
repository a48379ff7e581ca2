#include "executor/parallel/device_programs.h"

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/file.h"
#include "framework/op_attrs.h"
#include "framework/views/graph.h"
#include "ops/verify.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::executor {
namespace {

bool is_inserted(const Op& op) {
  return op.type() == "exchange_begin" || op.type() == "exchange_end" ||
         op.type() == "merge_gradient";
}

Status write_dot(const std::string& path, const std::string& text) {
  return write_file_atomically(path, text, Replace::kYes);
}

// One graph a device in a file.
Status write_graphs(const std::string& prefix, const Program& given,
                    const std::vector<std::unique_ptr<Program>>& devices) {
  MILLRACE_RETURN_IF_ERROR(write_dot(prefix + "_original_graph", dot_view(given)));
  MILLRACE_RETURN_IF_ERROR(write_dot(prefix + "_fused_graph", dot_view(given)));
  std::string text;
  for (size_t d = 0; d < devices.size(); ++d)
    text += fmt::format("// device {}, cpu, scope {}\n", d, d) + dot_view(*devices[d]);
  return write_dot(prefix + "_multi_devices_graph", text);
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<Program>>> make_device_programs(
    const Program& program, const ops::OpRegistry& registry, const ParallelOptions& options,
    std::vector<std::string>& remarks) {
  transpiler::PassRegistry passes;
  transpiler::register_all_passes(passes);
  std::vector<std::unique_ptr<Program>> programs;
  for (int device = 0; device < options.devices; ++device) {
    MILLRACE_ASSIGN_OR_RETURN(
        const transpiler::PassManager manager,
        transpiler::PassManager::create(passes, device_pipeline(options, device)));
    transpiler::PassContext context(registry);
    transpiler::PassManagerOptions settings;
    settings.check_changes = false;
    std::unique_ptr<Program> copy = program.clone();
    StatusOr<transpiler::PipelineReport> report = manager.run(*copy, context, settings);
    if (!report.ok()) return std::move(report).status();
    if (device == 0) remarks.insert(remarks.end(), context.remarks.begin(), context.remarks.end());
    programs.push_back(std::move(copy));
  }
  if (!options.build_strategy.debug_graphviz_path.empty()) {
    MILLRACE_RETURN_IF_ERROR(
        write_graphs(options.build_strategy.debug_graphviz_path, program, programs));
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

// Passes leave the order of ops as it is, so both lists are walked side by side.
int64_t given_index(const Program& given, const Program& of_device, int64_t op) {
  std::vector<const Op*> before;
  for (const Op& each : given.root().ops()) before.push_back(&each);
  size_t next = 0;
  int64_t index = 0;
  for (const Op& each : of_device.root().ops()) {
    if (is_inserted(each)) {
      if (index == op) return -1;
    } else {
      while (next < before.size() && before[next]->output_names() != each.output_names()) ++next;
      if (index == op) return next < before.size() ? static_cast<int64_t>(next) : -1;
      ++next;
    }
    ++index;
  }
  return -1;
}

}  // namespace millrace::executor
