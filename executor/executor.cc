#include "executor/executor.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/print_plan.h"
#include "framework/op_attrs.h"
#include "framework/tensor/layout.h"

namespace millrace::executor {
namespace {

// Names that the ops of a type set or read, in order of their column.
std::vector<std::string> targets_of(const Program& program, llvm::StringRef type) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const Op& op : program.root().ops()) {
    if (op.type() != type) continue;
    const llvm::StringRef name = type == "feed" ? op.first_output("Out") : op.first_input("X");
    found.emplace_back(get_attr_or<int32_t>(op, "col", 0), name.str());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [col, name] : found) names.push_back(std::move(name));
  return names;
}

Status check_feed(const Var& var, const Tensor& tensor) {
  const auto fail = [&](const std::string& expected) {
    Location place;
    place.var = var.name().str();
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("feed: expected {}, found {}", expected, describe(tensor)))
        .at(std::move(place));
  };
  if (!var.spec().has_tensor()) return Ok();
  MILLRACE_RETURN_IF_ERROR(tensor.lod().check(tensor.rank() == 0 ? 1 : tensor.dim(0)));
  if (!var.spec().need_check_feed.value_or(false)) return Ok();
  if (tensor.dtype() != var.dtype()) return fail(std::string(dtype_name(var.dtype())));
  const llvm::ArrayRef<int64_t> dims = var.dims();
  const std::string declared = fmt::format("dims [{}]", fmt::join(dims, ", "));
  if (tensor.rank() != dims.size()) return fail(declared);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0 && dims[i] != tensor.dims()[i]) return fail(declared);
  }
  return Ok();
}

// Copies into memory that the target has, where both hold tensors.
Status copy_value(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) {
    MILLRACE_RETURN_IF_ERROR(to.as<Tensor>().copy_from(*tensor));
    return make_plain(to.as<Tensor>());
  }
  MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
  return Ok();
}

}  // namespace

Status PreparedProgram::put_feed(const std::string& name, const Value& value) {
  Value* const target = runner_->find(name);
  if (target == nullptr) return Ok();
  runner_->keep(name);
  const Var* const var = program_->root().find_var(name);
  const auto* const tensor = value.get_if<Tensor>();
  if (var != nullptr && tensor != nullptr) MILLRACE_RETURN_IF_ERROR(check_feed(*var, *tensor));
  return copy_value(value, *target);
}

Status PreparedProgram::run(const NamedValues& feeds, const std::vector<std::string>& fetches,
                            std::vector<Value>& results) {
  for (const std::string& name : fetches) {
    if (runner_->find(name) == nullptr) {
      return {StatusCode::kNotFound,
              fmt::format("fetch: no op of the program uses a var '{}'", name)};
    }
  }
  for (const std::string& name : fetches) runner_->keep(name);
  for (const auto& [name, value] : feeds) MILLRACE_RETURN_IF_ERROR(put_feed(name, value));
  MILLRACE_RETURN_IF_ERROR(runner_->run());
  results.resize(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i)
    MILLRACE_RETURN_IF_ERROR(copy_value(*runner_->find(fetches[i]), results[i]));
  return Ok();
}

std::string PreparedProgram::plan_text() const {
  return print_plan(*runner_);
}

StatusOr<std::unique_ptr<PreparedProgram>> Executor::prepare(const Program& program,
                                                             Scope& scope) const {
  std::unique_ptr<PreparedProgram> prepared(new PreparedProgram());
  prepared->runtime_ = runtime_;
  prepared->program_ = program.clone();
  prepared->device_ = std::make_unique<kernels::CpuDevice>(options_.threads, options_.seed);
  prepared->locals_ = std::make_unique<Scope>(&scope);
  MILLRACE_ASSIGN_OR_RETURN(
      prepared->runner_,
      BlockRunner::compile(*runtime_, prepared->program_->root(), *prepared->device_));
  prepared->runner_->bind(*prepared->locals_);
  prepared->runner_->plan_memory();
  prepared->feed_targets_ = targets_of(*prepared->program_, "feed");
  prepared->fetch_targets_ = targets_of(*prepared->program_, "fetch");
  return prepared;
}

}  // namespace millrace::executor
