#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor.h"
#include "framework/op_attrs.h"
#include "framework/program.h"

namespace millrace::kernels {

inline constexpr DType kF64 = DType::kFloat64;
inline constexpr DType kI32 = DType::kInt32;
inline constexpr DType kI64 = DType::kInt64;

/// A dense tensor with these elements.
Value tensor_value(const Dims& dims, const std::vector<double>& values,
                   DType dtype = DType::kFloat32);
/// Selected rows of f32 whose values have these dims; dim 0 is the number of rows.
Value rows_value(std::vector<int64_t> rows, int64_t height, const Dims& dims,
                 const std::vector<double>& values);
/// Numbers between -1 and 1 that follow a smooth pattern; determined by the phase.
std::vector<double> waves(int64_t count, double phase = 0);
/// Numbers between -1 and 1 without a pattern; determined by the start.
std::vector<double> noise(size_t count, unsigned start = 1);
/// Elements of a tensor of these dims.
int64_t count_of(const Dims& dims);
/// Elements of a tensor, or of the values of selected rows.
std::vector<double> numbers(const Value& value);
/// Dims of a tensor.
std::vector<int64_t> dims(const Value& value);

/// A program of one op, and optionally its gradient ops, that runs through the executor. Vars are
/// named after slot and position: X0, X1, Out0, Out0@GRAD. Numbers are passed and read as doubles,
/// for any element type.
class RunOp {
 public:
  explicit RunOp(llvm::StringRef type);

  /// Adds a fed var to an input slot. values may be empty for an empty tensor; a single value fills
  /// the tensor.
  RunOp& in(llvm::StringRef slot, const Dims& dims, std::vector<double> values,
            DType dtype = DType::kFloat32, Lod lod = {});
  /// Adds a fed var of any kind to an input slot.
  RunOp& in(llvm::StringRef slot, Value value);
  /// Adds an output of another kind.
  RunOp& out_kind(llvm::StringRef slot, VarKind kind);
  /// Adds count vars without a shape to an output slot.
  RunOp& out(llvm::StringRef slot, int count = 1);
  /// Makes the outputs the vars of that input slot.
  RunOp& out_in_place(llvm::StringRef slot, llvm::StringRef input_slot);
  template <typename T>
  RunOp& attr(llvm::StringRef name, T value) {
    op_->set_attr(name, make_attr(std::move(value)));
    return *this;
  }
  RunOp& ints(llvm::StringRef name, std::vector<int32_t> value) {
    return attr(name, std::move(value));
  }

  /// Appends the gradient ops for these input slots; feed Out0@GRAD and so on with feed().
  RunOp& with_grad(const std::vector<std::string>& wanted_slots);
  /// Feeds a var with any name.
  RunOp& feed(const std::string& name, const Dims& dims, std::vector<double> values,
              DType dtype = DType::kFloat32, Lod lod = {});

  /// Runs and fetches every output.
  Status run(int threads = 1);
  /// Runs, appends the gradient ops for these input slots with waves() as gradient of Out0, and
  /// runs again.
  Status run_with_grad(const std::vector<std::string>& wanted_slots, int threads = 1);
  /// "ok", or the message of the error.
  std::string run_text(int threads = 1);

  /// Results of the last run.
  [[nodiscard]] const Value& value(const std::string& name) const { return results_.at(name); }
  [[nodiscard]] const Tensor& tensor(const std::string& name) const;
  [[nodiscard]] std::vector<double> values(const std::string& name) const;

  /// Largest difference between the gradient ops and finite differences of sum(w * output) for the
  /// element-wise weights w = 0.5, 0.75, 1, ..., relative to 1 + |gradient|. Inputs should be f64.
  /// Adds a failure if a run fails.
  double gradient_error(const std::vector<std::string>& wanted_slots, const std::string& output);

 private:
  double weighted_sum(const std::string& output);

  std::unique_ptr<Program> program_;
  Op* op_;
  executor::NamedValues feeds_;
  std::vector<std::string> outputs_;
  std::map<std::string, Value> results_;
};

}  // namespace millrace::kernels
