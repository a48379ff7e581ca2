#include "transpiler/upgrade/new_var.h"

#include "framework/names.h"

namespace millrace::transpiler {

std::string new_var(Op& op, llvm::StringRef base, llvm::StringRef what, VarSpec spec) {
  Block& block = op.block();
  const std::string first = names::upgraded(base, what);
  std::string name = first;
  for (int number = 1; block.find_var_recursive(name) != nullptr; ++number)
    name = fmt::format("{}_{}", first, number);
  block.declare(name, std::move(spec));
  return name;
}

}  // namespace millrace::transpiler
