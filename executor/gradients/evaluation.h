#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/runtime.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// A prepared program whose runs all start from the same state: after each run, persistable vars
/// that the program changes get their old values back, and the random numbers restart.
class Evaluation {
 public:
  /// \param scope  holds the persistable vars; must outlive the evaluation
  /// Errors: those of Executor::prepare().
  static StatusOr<std::unique_ptr<Evaluation>> open(const std::shared_ptr<const Runtime>& runtime,
                                                    const Program& program, Scope& scope,
                                                    const ExecutorOptions& options);

  /// Errors: those of PreparedProgram::run().
  StatusOr<std::vector<Value>> run(const NamedValues& feeds,
                                   const std::vector<std::string>& fetches);

 private:
  explicit Evaluation(Scope& scope) : scope_(scope) {}

  Scope& scope_;
  std::unique_ptr<PreparedProgram> prepared_;
  uint64_t position_ = 0;
  NamedValues state_;  ///< persistable vars that the program changes
};

/// The single number in a loss. Errors: kInvalidArgument naming the loss.
StatusOr<double> number_in(const Value& value, const std::string& name);

/// A gradient, or a parameter, as dense numbers; repeated rows are added up. Errors:
/// kInvalidProgram if it does not have `elements` elements, kUnimplemented for types other than f32
/// and f64.
StatusOr<std::vector<double>> dense_numbers(const Value& value, int64_t elements,
                                            const std::string& name);

}  // namespace millrace::executor
