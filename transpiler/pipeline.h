#pragma once

#include <string>
#include <variant>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// One `name=value` of a pass in a pipeline: a word or quoted string, or a list of those. The pass
/// decides its type.
struct PipelineOption {
  std::string name;
  std::variant<std::string, std::vector<std::string>> value;
  bool operator==(const PipelineOption&) const = default;
};

/// One pass of a pipeline with its options in their textual order.
struct PipelineStep {
  std::string pass;
  std::vector<PipelineOption> options;
  bool operator==(const PipelineStep&) const = default;

  /// The step as text; see Pipeline::to_string().
  [[nodiscard]] std::string to_string() const;
};

/// Passes in the order in which they run. Its text form is used in flags, tests, logs and reports.
struct Pipeline {
  std::vector<PipelineStep> steps;
  bool operator==(const Pipeline&) const = default;

  /// The shortest text that parse_pipeline() reads back to the same value: no blanks, quotes only
  /// where they are needed.
  [[nodiscard]] std::string to_string() const;
};

/// Maximum length of a pipeline text in bytes, and maximum number of passes.
inline constexpr size_t kMaxPipelineBytes = 1U << 20U;
inline constexpr size_t kMaxPipelineSteps = 1000;

/// Parses a pipeline:
///
///     pipeline = [ step { "," step } ]
///     step     = name [ "{" [ option { "," option } ] "}" ]
///     option   = name "=" ( value | "[" [ value { "," value } ] "]" )
///     value    = word | quoted string with \" \\ \n \t \xHH
///
/// A name consists of letters, digits, "-", "_" and "."; a word consists of printable ASCII
/// characters except , { } [ ] = " and \ . Blanks are allowed between any two of these. An empty
/// text is a pipeline without passes.
///
/// Errors: kInvalidArgument with the column (bytes, from 1), what was expected and what was found;
/// kResource above the limits.
StatusOr<Pipeline> parse_pipeline(llvm::StringRef text);

}  // namespace millrace::transpiler
