#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/array.h"
#include "framework/base/status.h"
#include "framework/types.h"

namespace millrace {

/// One call of a user-defined op: its arguments by slot, its attributes. Valid only during the
/// call.
class OpCall {
 public:
  OpCall() = default;
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;
  virtual ~OpCall() = default;

  /// Number of arguments of a slot; 0 if the op lacks it.
  [[nodiscard]] virtual size_t input_count(const std::string& slot) const = 0;
  [[nodiscard]] virtual size_t output_count(const std::string& slot) const = 0;
  /// False if the op lacks the argument, for example a gradient op whose output is not needed.
  [[nodiscard]] bool has_output(const std::string& slot, size_t k = 0) const {
    return k < output_count(slot);
  }
  /// An input. Errors: kExecution if it is missing or not a dense array.
  [[nodiscard]] virtual StatusOr<ArrayView> input(const std::string& slot, size_t k = 0) const = 0;
  /// Sets the type and dims of an output. An output that is also an input, as in optimizers, keeps
  /// its elements if neither changes.
  /// \returns its bytes, to be written
  /// Errors: kExecution if it is missing; kResource; kInvalidArgument for negative dims.
  virtual StatusOr<std::span<std::byte>> output(const std::string& slot, DType dtype,
                                                const std::vector<int64_t>& dims, size_t k = 0) = 0;
  /// output() as elements; T must belong to dtype.
  template <typename T>
  StatusOr<std::span<T>> output_values(const std::string& slot, DType dtype,
                                       const std::vector<int64_t>& dims, size_t k = 0) {
    StatusOr<std::span<std::byte>> bytes = output(slot, dtype, dims, k);
    if (!bytes.ok()) return std::move(bytes).status();
    return std::span<T>(reinterpret_cast<T*>(bytes->data()), bytes->size() / sizeof(T));
  }
  /// Sequence boundaries of an output. Errors: kExecution if it is missing.
  virtual Status set_lod(const std::string& slot, std::vector<std::vector<int64_t>> lod,
                         size_t k = 0) = 0;

  /// An attribute of a number or bool kind; nothing if the op lacks it or it is of another kind.
  [[nodiscard]] virtual std::optional<double> number(const std::string& name) const = 0;
  /// An attribute that is a list of numbers; nothing otherwise.
  [[nodiscard]] virtual std::optional<std::vector<double>> numbers(
      const std::string& name) const = 0;
  /// An attribute that is a string; nothing otherwise.
  [[nodiscard]] virtual std::optional<std::string> text(const std::string& name) const = 0;
};

/// A user-defined op type (SessionOptions::custom_ops). A training program has an op of another
/// type for its gradient, usually "<type>_grad", which must also be a CustomOp.
struct CustomOp {
  std::string type;
  /// Computes all outputs from the inputs; called by one thread at a time in each session. Must be
  /// copyable. A failure ends the run with the op's location.
  std::function<Status(OpCall&)> run;
};

}  // namespace millrace
