#include "transpiler/distribute/run_steps.h"

#include <fmt/format.h>

namespace millrace::transpiler {

Status run_steps(const Steps& steps, Program& program, PassContext& context) {
  for (const std::unique_ptr<Pass>& step : steps) {
    StatusOr<bool> changed = step->run(program, context);
    if (!changed.ok()) {
      const llvm::StringRef name = step->name();
      return std::move(changed).status().with_note(
          fmt::format("in pass '{}'", std::string_view(name.data(), name.size())));
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler
