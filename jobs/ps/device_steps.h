#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/gpu/kept_places.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::jobs {

/// Steps of a trainer that has several devices. A ParallelExecutor computes the step and reduces
/// the gradients over the devices. Then gradients are sent and parameters are received once for all
/// devices.
///
/// Thread-safety: one step at a time.
class DeviceSteps {
 public:
  /// Returns the options of the devices for a program: the computing part of the trainer's program.
  using Options = std::function<StatusOr<executor::ParallelOptions>(const Program& program)>;

  /// \param program  of the trainer; the ops that communicate with servers are removed from a copy
  /// \param scope    contains the parameters; must outlive the result
  /// Errors: kUnimplemented for a program that uses received values in the same step; those of the
  /// executors.
  static StatusOr<std::unique_ptr<DeviceSteps>> create(
      const std::shared_ptr<const executor::Runtime>& runtime, const executor::Executor& executor,
      const Program& program, Scope& scope, const Options& options, int threads);

  /// Runs one step. Fetches are concatenated along dim 0, in the order of devices.
  Status run(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& values);
  /// Copies the values of the scope to all devices, after a caller has changed them there.
  Status share_all() { return share(true); }
  [[nodiscard]] executor::PreparedProgram& transfer() { return *transfer_; }
  [[nodiscard]] executor::ParallelExecutor& devices() { return *parallel_; }

 private:
  DeviceSteps() = default;
  Status split(const Program& program);
  Status share(bool all);
  /// On GPUs: brings the vars of the scope that the communication part writes to process memory.
  Status bring_received();
  void note(Value& value, const std::string& name, int device);
  Status carry(std::vector<std::vector<Value>>& parts, size_t begin,
               executor::NamedValues& to) const;

  /// A var that the communication part reads and the computing part writes.
  struct Carried {
    std::string name;
    bool is_joined =
        false;  ///< each device has some of its rows; otherwise all devices have the same value
  };

  Scope* scope_ = nullptr;
  std::unique_ptr<Program> compute_program_;
  std::unique_ptr<Program> transfer_program_;
  std::vector<Carried> carried_;
  std::vector<std::string> shared_;  ///< persistable vars of the computing part
  /// By GPU: where they are in its memory. Empty: CPU devices.
  std::vector<std::unique_ptr<executor::KeptPlaces>> places_;
  std::unique_ptr<executor::ParallelExecutor> parallel_;
  std::unique_ptr<executor::PreparedProgram> transfer_;
};

}  // namespace millrace::jobs
