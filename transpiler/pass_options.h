#pragma once

#include <cassert>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <llvm/ADT/StringRef.h>

namespace millrace::transpiler {

/// Type of a pass option; the order is that of the members of OptionValue.
enum class OptionType { kBool, kInt, kFloat, kString, kStrings };

/// Value of a pass option.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

/// Name of a type in messages and documents: "bool", "int", "float", "string", "list".
llvm::StringRef option_type_name(OptionType type);

/// Options of one pass, checked against what the pass declares (PassInfo) and with its defaults
/// filled in; so reading one cannot fail. Made by PassRegistry::make().
class PassOptions {
 public:
  /// The value of a declared option; T is a member of OptionValue and the declared type. Requesting
  /// another name or type is a bug in the caller.
  template <typename T>
  [[nodiscard]] const T& get(llvm::StringRef name) const {
    const auto it = values_.find(name.str());
    assert(it != values_.end() && "the pass does not declare this option");
    return std::get<T>(it->second.value);
  }
  [[nodiscard]] bool flag(llvm::StringRef name) const { return get<bool>(name); }
  [[nodiscard]] int64_t integer(llvm::StringRef name) const { return get<int64_t>(name); }
  [[nodiscard]] double real(llvm::StringRef name) const { return get<double>(name); }
  [[nodiscard]] const std::string& string(llvm::StringRef name) const {
    return get<std::string>(name);
  }
  [[nodiscard]] const std::vector<std::string>& strings(llvm::StringRef name) const {
    return get<std::vector<std::string>>(name);
  }
  /// True if the pipeline sets the option, false if it has its default.
  [[nodiscard]] bool given(llvm::StringRef name) const {
    const auto it = values_.find(name.str());
    return it != values_.end() && it->second.given;
  }

  void set(llvm::StringRef name, OptionValue value, bool given);

 private:
  struct Entry {
    OptionValue value;
    bool given = false;
  };
  std::map<std::string, Entry> values_;
};

}  // namespace millrace::transpiler
