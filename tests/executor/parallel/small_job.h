#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/parallel/parallel_executor.h"
#include "framework/program.h"
#include "tests/executor/values.h"

namespace millrace::executor {

/// y = x w + b with the squared error to t, trained by sgd with rate 0.1; w has 3 rows.
std::unique_ptr<Program> linear_regression();
/// The same without training: x is fed, y is fetched.
std::unique_ptr<Program> linear_inference();
/// Reads a program; the text must be valid.
std::unique_ptr<Program> program_of(const std::string& text);

/// Rows of x and t that are computed from a number, so that steps differ.
NamedValues batch(int64_t rows, int seed);

/// A scope with initial values of w, b and lr, and its executors.
struct Job {
  explicit Job(const ParallelOptions& options, std::unique_ptr<Program> program = nullptr);

  /// Runs the given number of steps of `rows` examples; returns the merged loss of each. Fails the
  /// test on errors.
  std::vector<std::vector<float>> train(int steps, int64_t rows);

  Scope scope;
  std::unique_ptr<ParallelExecutor> executor;
};

/// Options for that many devices for linear_regression().
ParallelOptions devices(int count);

}  // namespace millrace::executor
