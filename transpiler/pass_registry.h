#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "transpiler/pass.h"
#include "transpiler/pipeline.h"

namespace millrace::transpiler {

/// One documented option of a pass. Strings are literals.
struct OptionDef {
  llvm::StringRef name;
  OptionType type = OptionType::kString;
  std::optional<OptionValue> fallback;  ///< absent: the option is required
  llvm::StringRef doc;
  double min = -std::numeric_limits<double>::infinity();  ///< inclusive; numbers only
  double max = std::numeric_limits<double>::infinity();   ///< inclusive
  std::vector<llvm::StringRef> choices;                   ///< for strings; empty: any
};

/// What a registry knows of one pass. Built by chaining, as ops::OpDef is; strings are literals.
class PassInfo {
 public:
  /// \param name     lower-case words with dashes
  /// \param summary  one line, lower-case, without full stop: what the pass does
  PassInfo(llvm::StringRef name, llvm::StringRef summary) : name_(name), summary_(summary) {}

  /// Option with a default, one setter for each type.
  PassInfo& flag(llvm::StringRef name, bool fallback, llvm::StringRef doc);
  PassInfo& integer(llvm::StringRef name, int64_t fallback, llvm::StringRef doc);
  PassInfo& real(llvm::StringRef name, double fallback, llvm::StringRef doc);
  PassInfo& string(llvm::StringRef name, llvm::StringRef fallback, llvm::StringRef doc);
  /// List of strings; the default is the empty list.
  PassInfo& strings(llvm::StringRef name, llvm::StringRef doc);
  /// The option declared last has no default: a pipeline must set it.
  PassInfo& required();
  /// Bounds, inclusive, of the number declared last.
  PassInfo& range(double min, double max = std::numeric_limits<double>::infinity());
  /// Permitted values of the string declared last.
  PassInfo& one_of(std::initializer_list<llvm::StringRef> choices);
  /// The class of the pass. P has a constructor that takes a const PassOptions&, or none.
  template <typename P>
  PassInfo& makes();
  PassInfo& factory(PassFactory make);

  [[nodiscard]] llvm::StringRef name() const { return name_; }
  [[nodiscard]] llvm::StringRef summary() const { return summary_; }
  [[nodiscard]] llvm::ArrayRef<OptionDef> options() const { return options_; }
  [[nodiscard]] const PassFactory& factory() const { return factory_; }

 private:
  PassInfo& add(llvm::StringRef name, OptionType type, OptionValue fallback, llvm::StringRef doc);

  llvm::StringRef name_;
  llvm::StringRef summary_;
  std::vector<OptionDef> options_;
  PassFactory factory_;
};

/// The passes that can be used in pipelines. Filled by function calls, then immutable.
/// Thread-safety: concurrent readers after filling.
class PassRegistry {
 public:
  PassRegistry() = default;
  PassRegistry(const PassRegistry&) = delete;
  PassRegistry& operator=(const PassRegistry&) = delete;

  /// Adds a pass. Aborts if the name was added before or the pass has no factory: both are bugs.
  void add(PassInfo info);

  /// The pass of that name; null if there is none.
  [[nodiscard]] const PassInfo* find(llvm::StringRef name) const;
  /// All passes in alphabetical order.
  [[nodiscard]] std::vector<const PassInfo*> passes() const;

  /// Creates the pass of one pipeline step after checking its options.
  /// Errors: kInvalidArgument naming the pass and the option, with the nearest name as a hint.
  [[nodiscard]] StatusOr<std::unique_ptr<Pass>> make(const PipelineStep& step) const;

 private:
  std::vector<std::unique_ptr<PassInfo>> passes_;  // sorted by name
};

template <typename P>
PassInfo& PassInfo::makes() {
  return factory([](const PassOptions& options) -> StatusOr<std::unique_ptr<Pass>> {
    if constexpr (std::is_constructible_v<P, const PassOptions&>) {
      return std::unique_ptr<Pass>(std::make_unique<P>(options));
    } else {
      (void)options;
      return std::unique_ptr<Pass>(std::make_unique<P>());
    }
  });
}

}  // namespace millrace::transpiler
