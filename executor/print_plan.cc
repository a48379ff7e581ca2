#include "executor/print_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/overlap/overlap.h"
#include "framework/program.h"

namespace millrace::executor {
namespace {

std::string output_text(const BlockRunner& runner, const Step& step, size_t position,
                        llvm::StringRef name) {
  std::string text = name.str();
  for (const Step::Result& result : step.results) {
    if (result.output != position) continue;
    text += fmt::format(": {} [{}]", dtype_name(result.dtype),
                        result.sized ? fmt::format("{}", fmt::join(result.dims, ", "))
                                     : std::string("by the kernel"));
  }
  const int64_t offset = runner.arena().offset(step.outputs[position]);
  return offset < 0 ? text : text + fmt::format(" at {}", offset);
}

int32_t group_of(const BlockRunner& runner, size_t step) {
  return runner.overlap() == nullptr ? -1 : runner.overlap()->group_of(step);
}

}  // namespace

std::string print_plan(const BlockRunner& runner) {
  std::string text =
      fmt::format("block {}: {} steps\n", runner.block().index(), runner.steps().size());
  int64_t number = 0;
  for (const Step& step : runner.steps()) {
    const int32_t group = group_of(runner, static_cast<size_t>(number));
    text += fmt::format("{:>6}  {:<28}{}{}", number++, step.op->type().str(),
                        step.control ? " [control]" : "",
                        group < 0 ? "" : fmt::format(" [side by side {}]", group));
    size_t position = 0;
    for (const Slot& slot : step.op->outputs()) {
      for (const Arg& arg : slot.args) {
        if (step.outputs[position] >= 0)
          text += "  " + output_text(runner, step, position, step.op->name_of(arg.name));
        ++position;
      }
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += '\n';
  }
  text += fmt::format("memory of temporaries: {} bytes; live at once: {} bytes\n",
                      runner.arena().bytes(), runner.arena().peak_live());
  return text;
}

}  // namespace millrace::executor
