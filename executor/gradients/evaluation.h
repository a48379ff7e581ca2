#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/runtime.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// A prepared program whose runs all start from the same state: persistable vars that the program
/// changes get their values back after each run, and random numbers begin again.
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

/// The one number of a loss. Errors: kInvalidArgument naming it.
StatusOr<double> number_in(const Value& value, const std::string& name);

/// A gradient, or a parameter, as dense numbers; rows that occur twice add up.
/// Errors: kInvalidProgram where it does not have so many elements, kUnimplemented for other types
/// than f32 and f64.
StatusOr<std::vector<double>> dense_numbers(const Value& value, int64_t elements,
                                            const std::string& name);

}  // namespace millrace::executor
