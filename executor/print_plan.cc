#include "executor/print_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/gpu/gpu_ops.h"
#include "executor/overlap/overlap.h"
#include "framework/program.h"

namespace millrace::executor {
namespace print_plan_parts {
namespace {

std::string output_text(const BlockRunner& runner, const CompiledOp& compiled, size_t position,
                        llvm::StringRef name) {
  std::string text = name.str();
  for (const CompiledOp::Result& result : compiled.results) {
    if (result.output != position) continue;
    text += fmt::format(": {} [{}]", dtype_name(result.dtype),
                        result.sized ? fmt::format("{}", fmt::join(result.dims, ", "))
                                     : std::string("by the kernel"));
  }
  const int64_t offset = runner.arena().offset(compiled.outputs[position]);
  return offset < 0 ? text : text + fmt::format(" at {}", offset);
}

int32_t group_of(const BlockRunner& runner, size_t compiled) {
  return runner.overlap() == nullptr ? -1 : runner.overlap()->group_of(compiled);
}

// Where an op runs, and what it copied to and from the device in the latest run.
std::string place_text(const BlockRunner& runner, size_t index) {
  if (runner.gpu() == nullptr || runner.compiled_ops()[index].control) return "";
  const GpuOps::Placed& placed = runner.gpu()->placed(index);
  const gpu::Traffic& copied = placed.copied;
  std::string text = placed.kernel ? " [gpu]" : fmt::format(" [cpu: {}]", placed.reason);
  if (copied.bytes_in > 0) text += fmt::format(" [{} bytes to the gpu]", copied.bytes_in);
  if (copied.bytes_out > 0) text += fmt::format(" [{} bytes from the gpu]", copied.bytes_out);
  return text;
}

}  // namespace
}  // namespace print_plan_parts

std::string print_plan(const BlockRunner& runner) {
  using namespace print_plan_parts;
  std::string text =
      fmt::format("block {}: {} steps\n", runner.block().index(), runner.compiled_ops().size());
  int64_t number = 0;
  for (const CompiledOp& compiled : runner.compiled_ops()) {
    const int32_t group = group_of(runner, static_cast<size_t>(number));
    text += fmt::format("{:>6}  {:<28}{}{}{}", number, compiled.op->type().str(),
                        compiled.control ? " [control]" : "",
                        group < 0 ? "" : fmt::format(" [side by side {}]", group),
                        place_text(runner, static_cast<size_t>(number)));
    ++number;
    size_t position = 0;
    for (const Slot& slot : compiled.op->outputs()) {
      for (const Arg& arg : slot.args) {
        if (compiled.outputs[position] >= 0)
          text += "  " + output_text(runner, compiled, position, compiled.op->name_of(arg.name));
        ++position;
      }
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += '\n';
  }
  text += fmt::format("memory of temporaries: {} bytes; live at once: {} bytes\n",
                      runner.arena().bytes(), runner.arena().peak_live());
  if (runner.gpu() != nullptr) {
    const GpuOps::Counts counts = runner.gpu()->counts();
    text += fmt::format(
        "device memory of temporaries: {} bytes; live at once: {} bytes\n"
        "ops on the gpu: {}; on the cpu: {}\n",
        runner.arena().device_bytes(), runner.arena().device_peak_live(), counts.on_gpu,
        counts.on_cpu);
  }
  return text;
}

}  // namespace millrace::executor
