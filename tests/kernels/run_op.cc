#include "tests/kernels/run_op.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/names.h"
#include "kernels/dispatch.h"
#include "ops/grad.h"

namespace millrace::kernels {
namespace {

const std::shared_ptr<const executor::Runtime>& runtime() {
  static const std::shared_ptr<const executor::Runtime> kRuntime = executor::standard_runtime();
  return kRuntime;
}

template <typename T>
void fill(Tensor& tensor, const std::vector<double>& values) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = values.size() == 1 ? values[0] : values.at(static_cast<size_t>(i));
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
      tensor.data<T>()[i] = T(static_cast<float>(value));
    } else {
      tensor.data<T>()[i] = static_cast<T>(value);
    }
  }
}

void fill_tensor(Tensor& tensor, DType dtype, const Dims& dims, const std::vector<double>& values) {
  EXPECT_TRUE(tensor.resize(dtype, dims).ok());
  EXPECT_TRUE(dispatch<AllTypes>(dtype, [&](auto tag) {
                fill<typename decltype(tag)::type>(tensor, values);
                return Ok();
              }).ok());
}

double weight(size_t i) {
  return 0.5 + 0.25 * static_cast<double>(i % 7);
}

}  // namespace

Value tensor_value(const Dims& dims, const std::vector<double>& values, DType dtype) {
  Value value;
  fill_tensor(value.as<Tensor>(), dtype, dims, values);
  return value;
}

Value rows_value(std::vector<int64_t> rows, int64_t height, const Dims& dims,
                 const std::vector<double>& values) {
  Value value;
  auto& held = value.as<SelectedRows>();
  held.rows = std::move(rows);
  held.height = height;
  fill_tensor(held.value, DType::kFloat32, dims, values);
  return value;
}

std::vector<double> noise(size_t count, unsigned start) {
  std::vector<double> values(count);
  unsigned state = start * 2654435761U + 12345U;
  for (double& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<double>(state >> 16U) / 32768.0 - 1.0;
  }
  return values;
}

int64_t count_of(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

std::vector<double> waves(int64_t count, double phase) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(std::sin(1.7 * static_cast<double>(i) + 0.3 + phase));
  return out;
}

std::vector<double> numbers(const Value& value) {
  const auto* const rows = value.get_if<SelectedRows>();
  const Tensor* const from = rows == nullptr ? value.get_if<Tensor>() : &rows->value;
  std::vector<double> result;
  if (from == nullptr) return result;
  EXPECT_TRUE(dispatch<AllTypes>(from->dtype(), [&](auto tag) {
                for (const auto element : from->values<typename decltype(tag)::type>())
                  result.push_back(static_cast<double>(element));
                return Ok();
              }).ok());
  return result;
}

std::vector<int64_t> dims(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  return tensor == nullptr ? std::vector<int64_t>{-1} : tensor->dims().vec();
}

RunOp::RunOp(llvm::StringRef type)
    : program_(Program::create()), op_(&program_->root().append_op(type)) {}

RunOp& RunOp::feed(const std::string& name, const Dims& dims, std::vector<double> values,
                   DType dtype, Lod lod) {
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.lod_level = static_cast<int32_t>(lod.size());
  if (program_->root().find_var(name) == nullptr) program_->root().declare(name, std::move(spec));
  auto& tensor = feeds_[name].as<Tensor>();
  fill_tensor(tensor, dtype, dims, values);
  tensor.set_lod(std::move(lod));
  return *this;
}

RunOp& RunOp::in(llvm::StringRef slot, const Dims& dims, std::vector<double> values, DType dtype,
                 Lod lod) {
  auto names = op_->input(slot);
  const std::string name = slot.str() + std::to_string(names.size());
  feed(name, dims, std::move(values), dtype, std::move(lod));
  names.push_back(name);
  op_->set_input(slot, llvm::ArrayRef<llvm::StringRef>(names));
  return *this;
}

RunOp& RunOp::in(llvm::StringRef slot, Value value) {
  auto names = op_->input(slot);
  const std::string name = slot.str() + std::to_string(names.size());
  VarSpec spec = VarSpec::shapeless(value.kind());
  if (const auto* const held = value.get_if<Tensor>())
    spec = VarSpec::tensor(held->dtype(), held->dims());
  program_->root().declare(name, std::move(spec));
  feeds_[name] = std::move(value);
  names.push_back(name);
  op_->set_input(slot, llvm::ArrayRef<llvm::StringRef>(names));
  return *this;
}

RunOp& RunOp::out_kind(llvm::StringRef slot, VarKind kind) {
  const std::string name = slot.str() + "0";
  program_->root().declare(name, VarSpec::shapeless(kind));
  outputs_.push_back(name);
  op_->set_output(slot, name);
  return *this;
}

RunOp& RunOp::out(llvm::StringRef slot, int count) {
  std::vector<std::string> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(slot.str() + std::to_string(i));
    program_->root().declare(made.back(), VarSpec::shapeless(VarKind::kLodTensor));
    outputs_.push_back(made.back());
  }
  const std::vector<llvm::StringRef> names(made.begin(), made.end());
  op_->set_output(slot, llvm::ArrayRef<llvm::StringRef>(names));
  return *this;
}

RunOp& RunOp::out_in_place(llvm::StringRef slot, llvm::StringRef input_slot) {
  const auto names = op_->input(input_slot);
  op_->set_output(slot, llvm::ArrayRef<llvm::StringRef>(names));
  for (const llvm::StringRef name : names) outputs_.push_back(name.str());
  return *this;
}

RunOp& RunOp::with_grad(const std::vector<std::string>& wanted_slots) {
  const ops::GradContext context(*op_, [&](llvm::StringRef name) {
    return std::any_of(wanted_slots.begin(), wanted_slots.end(), [name](const std::string& slot) {
      return name.startswith(slot) && name.drop_front(slot.size()).size() == 1;
    });
  });
  auto made = ops::make_grad_ops(*runtime()->ops, context);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (!made.ok()) return *this;
  Block& block = program_->root();
  for (const ops::GradOp& grad : *made) {
    Op& op = block.append_op(grad.type);
    for (const auto& [slot, names] : grad.inputs) {
      for (const std::string& name : names) {
        if (block.find_var(name) == nullptr)
          block.declare(name, VarSpec::shapeless(VarKind::kLodTensor));
      }
      op.set_input(slot, llvm::ArrayRef<llvm::StringRef>(
                             std::vector<llvm::StringRef>(names.begin(), names.end())));
    }
    for (const auto& [slot, names] : grad.outputs) {
      for (const std::string& name : names) {
        if (block.find_var(name) == nullptr)
          block.declare(name, VarSpec::shapeless(VarKind::kLodTensor));
        if (name != names::kEmpty) outputs_.push_back(name);
      }
      op.set_output(slot, llvm::ArrayRef<llvm::StringRef>(
                              std::vector<llvm::StringRef>(names.begin(), names.end())));
    }
    for (const auto& [name, value] : grad.attrs) op.set_attr(name, value);
  }
  return *this;
}

Status RunOp::run(int threads) {
  Scope scope;
  executor::ExecutorOptions options;
  options.threads = threads;
  MILLRACE_ASSIGN_OR_RETURN(const auto prepared,
                            executor::Executor(runtime(), options).prepare(*program_, scope));
  std::vector<Value> fetched;
  MILLRACE_RETURN_IF_ERROR(prepared->run(feeds_, outputs_, fetched));
  results_.clear();
  for (size_t i = 0; i < outputs_.size(); ++i) results_[outputs_[i]] = std::move(fetched[i]);
  return Ok();
}

Status RunOp::run_with_grad(const std::vector<std::string>& wanted_slots, int threads) {
  MILLRACE_RETURN_IF_ERROR(run(threads));
  const Tensor& out = tensor("Out0");
  const Dims dims(out.dims().begin(), out.dims().end());
  feed("Out0@GRAD", dims, waves(out.numel(), 5), out.dtype());
  with_grad(wanted_slots);
  return run(threads);
}

std::string RunOp::run_text(int threads) {
  const Status status = run(threads);
  return status.ok() ? "ok" : status.message();
}

const Tensor& RunOp::tensor(const std::string& name) const {
  return *results_.at(name).get_if<Tensor>();
}

std::vector<double> RunOp::values(const std::string& name) const {
  return numbers(results_.at(name));
}

double RunOp::weighted_sum(const std::string& output) {
  const Status status = run();
  EXPECT_TRUE(status.ok()) << status.to_string();
  if (!status.ok()) return std::nan("");
  const std::vector<double> found = values(output);
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += weight(i) * found[i];
  return sum;
}

double RunOp::gradient_error(const std::vector<std::string>& wanted_slots,
                             const std::string& output) {
  constexpr double kStep = 1e-5;
  weighted_sum(output);
  if (results_.empty()) return std::nan("");
  const Dims dims(tensor(output).dims().begin(), tensor(output).dims().end());
  const DType dtype = tensor(output).dtype();
  std::vector<double> weights(static_cast<size_t>(tensor(output).numel()));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = weight(i);
  const std::vector<std::string> forward_outputs = outputs_;
  with_grad(wanted_slots);
  feed(output + "@GRAD", dims, weights, dtype);
  weighted_sum(output);
  const auto analytic = std::move(results_);
  double worst = 0;
  for (const std::string& slot : wanted_slots) {
    const std::string name = slot + "0";
    results_.clear();
    const auto found = analytic.find(name + "@GRAD");
    EXPECT_NE(found, analytic.end()) << name;
    if (found == analytic.end()) return std::nan("");
    const auto* const gradient = found->second.get_if<Tensor>();
    auto& input = feeds_[name].as<Tensor>();
    for (int64_t i = 0; i < input.numel(); ++i) {
      double& element = input.data<double>()[i];
      const double kept = element;
      element = kept + kStep;
      const double above = weighted_sum(output);
      element = kept - kStep;
      const double below = weighted_sum(output);
      element = kept;
      const double numeric = (above - below) / (2 * kStep);
      const double difference = std::fabs(gradient->data<double>()[i] - numeric);
      worst = std::max(worst, difference / (1 + std::fabs(numeric)));
    }
  }
  return worst;
}

}  // namespace millrace::kernels
