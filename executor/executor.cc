#include "executor/executor.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/optimize.h"
#include "executor/print_plan.h"
#include "framework/op_attrs.h"
#include "framework/tensor/layout.h"

namespace millrace::executor {
namespace {

// Names that the ops of a type set or read, in order of their column.
std::vector<std::string> targets_of(const Program& program, llvm::StringRef type) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const Op& op : program.root().ops()) {
    if (op.type() != type && op.type() != (type + "_v2").str()) continue;
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
  if (const auto* const tensor = from.get_if<Tensor>()) return copy_plain(*tensor, to.as<Tensor>());
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
  MILLRACE_RETURN_IF_ERROR(provide(fetches));
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

// Compiles what is to run: the program as it was given, or a rewritten copy.
Status PreparedProgram::compile() {
  if (original_ != nullptr) {
    program_ = original_->clone();
    MILLRACE_ASSIGN_OR_RETURN(const bool changed, optimize(*program_, *runtime_->ops, kept_));
    if (!changed) original_.reset();
  }
  // Temporaries of an earlier program may stand in memory that its runner has planned.
  runner_.reset();
  locals_ = std::make_unique<Scope>(scope_);
  MILLRACE_ASSIGN_OR_RETURN(runner_, BlockRunner::compile(*runtime_, program_->root(), *device_));
  runner_->bind(*locals_);
  runner_->plan_memory();
  runner_->observe(observer_);
  return Ok();
}

// Sees to it that the program has the vars that are fetched.
Status PreparedProgram::provide(const std::vector<std::string>& fetches) {
  const size_t before = kept_.size();
  for (const std::string& name : fetches) {
    if (runner_->find(name) != nullptr) continue;
    const bool removed = original_ != nullptr && (original_->root().has_readers(name) ||
                                                  original_->root().has_writers(name));
    if (!removed) {
      return {StatusCode::kNotFound,
              fmt::format("fetch: no op of the program uses a var '{}'", name)};
    }
    kept_.push_back(name);
  }
  return kept_.size() == before ? Ok() : compile();
}

StatusOr<std::unique_ptr<PreparedProgram>> Executor::prepare(const Program& program,
                                                             Scope& scope) const {
  std::unique_ptr<PreparedProgram> prepared(new PreparedProgram());
  prepared->runtime_ = runtime_;
  prepared->scope_ = &scope;
  prepared->device_ = std::make_unique<kernels::CpuDevice>(options_.threads, options_.seed);
  (options_.optimize ? prepared->original_ : prepared->program_) = program.clone();
  MILLRACE_RETURN_IF_ERROR(prepared->compile());
  prepared->feed_targets_ = targets_of(*prepared->program_, "feed");
  prepared->fetch_targets_ = targets_of(*prepared->program_, "fetch");
  return prepared;
}

}  // namespace millrace::executor
