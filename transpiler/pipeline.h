#pragma once

#include <string>
#include <variant>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// One `name=value` of a pass in a pipeline: a word or quoted string, or a list of those. What type
/// it has is the pass's to say.
struct PipelineOption {
  std::string name;
  std::variant<std::string, std::vector<std::string>> value;
  bool operator==(const PipelineOption&) const = default;
};

/// One pass of a pipeline with its options in the order in which they are written.
struct PipelineStep {
  std::string pass;
  std::vector<PipelineOption> options;
  bool operator==(const PipelineStep&) const = default;

  /// The step as text; see Pipeline::to_string().
  [[nodiscard]] std::string to_string() const;
};

/// Passes in the order in which they run. The text is the form for flags, tests, logs and reports.
struct Pipeline {
  std::vector<PipelineStep> steps;
  bool operator==(const Pipeline&) const = default;

  /// The shortest text that parse_pipeline() reads back to the same value: no blanks, quotes only
  /// where they are needed.
  [[nodiscard]] std::string to_string() const;
};

/// Longest pipeline text in bytes, and most passes in one.
inline constexpr size_t kMaxPipelineBytes = 1U << 20U;
inline constexpr size_t kMaxPipelineSteps = 1000;

/// Reads a pipeline:
///
///     pipeline = [ step { "," step } ]
///     step     = name [ "{" [ option { "," option } ] "}" ]
///     option   = name "=" ( value | "[" [ value { "," value } ] "]" )
///     value    = word | quoted string with \" \\ \n \t \xHH
///
/// A name is made of letters, digits, "-", "_" and "."; a word of printable ASCII characters except
/// , { } [ ] = " and \ . Blanks may stand between any two of these. An empty text is a pipeline
/// without passes.
///
/// Errors: kInvalidArgument with the column (bytes, from 1), what was expected and what was found;
/// kResource above the limits.
StatusOr<Pipeline> parse_pipeline(llvm::StringRef text);

}  // namespace millrace::transpiler
