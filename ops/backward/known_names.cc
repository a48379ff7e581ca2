#include "ops/backward/known_names.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::ops::backward {

Status require_declared(const Program& program, const std::string& name, DeclaredIn where,
                        const std::string& option) {
  const auto blocks = program.blocks();
  const bool found = where == DeclaredIn::kRoot
                         ? program.root().find_var(name) != nullptr
                         : std::any_of(blocks.begin(), blocks.end(), [&name](const Block& block) {
                             return block.find_var(name) != nullptr;
                           });
  if (found) return Ok();
  std::vector<std::string_view> names;
  for (const Var& var : program.root().vars()) names.emplace_back(var.name());
  const std::string nearest = nearest_name(name, names);
  return InvalidArgument("{}: the program declares no var '{}'{}", option, name,
                         where == DeclaredIn::kRoot ? " in block 0" : "")
      .with_hint(nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest));
}

Status check_names(const Program& program, const std::vector<std::string>& parameters,
                   const std::set<std::string>& no_grad) {
  for (const std::string& name : parameters)
    MILLRACE_RETURN_IF_ERROR(require_declared(program, name, DeclaredIn::kRoot, "parameters"));
  for (const std::string& name : no_grad)
    MILLRACE_RETURN_IF_ERROR(require_declared(program, name, DeclaredIn::kAnyBlock, "no_grad"));
  return Ok();
}

}  // namespace millrace::ops::backward
