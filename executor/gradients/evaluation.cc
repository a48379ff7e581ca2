#include "executor/gradients/evaluation.h"

#include <llvm/ADT/STLExtras.h>

#include "executor/feed_values.h"
#include "framework/base/errors.h"

namespace millrace::executor {

StatusOr<double> number_in(const Value& value, const std::string& name) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->numel() != 1)
    return InvalidArgument("loss '{}': expected one element, found {}", name, describe(value));
  if (tensor->dtype() == DType::kFloat64) return tensor->data<double>()[0];
  if (tensor->dtype() == DType::kFloat32) return static_cast<double>(tensor->data<float>()[0]);
  return InvalidArgument("loss '{}': expected f32 or f64, found {}", name, describe(value));
}

StatusOr<std::vector<double>> dense_numbers(const Value& value, int64_t elements,
                                            const std::string& name) {
  std::vector<double> out(static_cast<size_t>(elements), 0);
  const auto add = [&](const Tensor& tensor, int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[static_cast<size_t>(to + i)] += tensor.dtype() == DType::kFloat64
                                              ? tensor.data<double>()[from + i]
                                              : static_cast<double>(tensor.data<float>()[from + i]);
    }
  };
  const auto* const rows = value.get_if<SelectedRows>();
  const Tensor* const tensor = rows == nullptr ? value.get_if<Tensor>() : &rows->value;
  if (tensor == nullptr || (tensor->numel() > 0 && !tensor->initialized()))
    return InvalidProgram("gradient '{}' holds {}, expected a tensor", name, describe(value));
  if (tensor->dtype() != DType::kFloat64 && tensor->dtype() != DType::kFloat32)
    return Unimplemented("gradient '{}' is {}, expected f32 or f64", name, describe(value));
  if (rows == nullptr) {
    if (tensor->numel() != elements)
      return InvalidProgram("gradient '{}' is {}, expected {} elements", name, describe(value),
                            elements);
    add(*tensor, 0, 0, elements);
    return out;
  }
  const int64_t width = rows->height > 0 ? elements / rows->height : 0;
  if (tensor->numel() != static_cast<int64_t>(rows->rows.size()) * width)
    return InvalidProgram("gradient '{}' is {}, expected rows of {} elements", name,
                          describe(value), width);
  for (size_t i = 0; i < rows->rows.size(); ++i) {
    const int64_t row = rows->rows[i];
    if (row < 0 || row >= rows->height)
      return InvalidProgram("gradient '{}' has row {} of {}", name, row, rows->height);
    add(*tensor, static_cast<int64_t>(i) * width, row * width, width);
  }
  return out;
}

StatusOr<std::unique_ptr<Evaluation>> Evaluation::open(
    const std::shared_ptr<const Runtime>& runtime, const Program& program, Scope& scope,
    const ExecutorOptions& options) {
  std::unique_ptr<Evaluation> made(new Evaluation(scope));
  const Executor executor(runtime, options);
  MILLRACE_ASSIGN_OR_RETURN(made->prepared_, executor.prepare(program, scope));
  made->position_ = made->prepared_->random_position();
  for (const Var& var : program.root().vars()) {
    if (!var.persistable()) continue;
    const bool written = llvm::any_of(
        program.blocks(), [&](const Block& block) { return block.has_writers(var.name()); });
    const Value* const value = scope.find_local(var.name());
    if (!written || value == nullptr || !value->initialized()) continue;
    MILLRACE_RETURN_IF_ERROR(copy_value(*value, made->state_[var.name().str()]));
  }
  return made;
}

StatusOr<std::vector<Value>> Evaluation::run(const NamedValues& feeds,
                                             const std::vector<std::string>& fetches) {
  prepared_->set_random_position(position_);
  std::vector<Value> results;
  MILLRACE_RETURN_IF_ERROR(prepared_->run(feeds, fetches, results));
  for (const auto& [name, value] : state_)
    MILLRACE_RETURN_IF_ERROR(copy_value(value, scope_.local(name)));
  return results;
}

}  // namespace millrace::executor
