#include "transpiler/pass_options.h"

namespace millrace::transpiler {

llvm::StringRef option_type_name(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "bool";
    case OptionType::kInt:
      return "int";
    case OptionType::kFloat:
      return "float";
    case OptionType::kString:
      return "string";
    case OptionType::kStrings:
      return "list";
  }
  return "?";
}

void PassOptions::set(llvm::StringRef name, OptionValue value, bool given) {
  values_[name.str()] = Entry{std::move(value), given};
}

}  // namespace millrace::transpiler
