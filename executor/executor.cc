#include "executor/executor.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/compiled_ops/memory_guard.h"
#include "executor/feed_targets.h"
#include "executor/feed_values.h"
#include "executor/optimize.h"
#include "executor/print_plan.h"
#include "executor/update_order.h"
#include "framework/base/errors.h"
#include "kernels/gpu/context.h"
#include "ops/verify.h"

namespace millrace::executor {
namespace {

// With a GPU, options that concern the CPU only are refused.
Status check_options(const ExecutorOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("threads: expected at least 1, found {}", options.threads);
  if (options.gpu == nullptr) return Ok();
  const std::pair<bool, const char*> refused[] = {{options.inter_op, "inter_op"},
                                                  {options.release_folded, "release_folded"},
                                                  {options.debug_memory, "debug_memory"}};
  for (const auto& [given, name] : refused) {
    if (given) return Unimplemented("{} with a GPU: supported only for programs on the CPU", name);
  }
  return Ok();
}

}  // namespace

Status PreparedProgram::put_feed(const std::string& name, const Value& value) {
  Value* const target = runner_->find(name);
  if (target == nullptr) return Ok();
  if (locks_ != nullptr && locks_->find(target) != nullptr)
    return InvalidArgument("feed '{}': several threads share this variable", name);
  runner_->keep(name);
  const Var* const var = program_->root().find_var(name);
  MILLRACE_RETURN_IF_ERROR(check_feed(var, value));
  return copy_feed(name, value, options_.gpu == nullptr ? nullptr : &options_.gpu->memory(),
                   *target);
}

// Drops temporaries of the previous run, including feeds that are not given again; feeds that are
// given again keep their memory.
void PreparedProgram::forget_last_run(const NamedValues& feeds) {
  fed_.clear();
  for (const auto& [name, value] : feeds) fed_.push_back(runner_->find(name));
  runner_->forget_last_run([this](const Value& value) { return llvm::is_contained(fed_, &value); });
}

Status PreparedProgram::run(const NamedValues& feeds, const std::vector<std::string>& fetches,
                            std::vector<Value>& results) {
  MILLRACE_RETURN_IF_ERROR(provide(fetches));
  for (const std::string& name : fetches) runner_->keep(name);
  MILLRACE_RETURN_IF_ERROR(check_feed_names(given(), feeds));
  forget_last_run(feeds);
  for (const auto& [name, value] : feeds) MILLRACE_RETURN_IF_ERROR(put_feed(name, value));
  if (Status status = runner_->run(); !status.ok()) {
    return original_ == nullptr ? status : places_.translate(std::move(status), *original_);
  }
  if (options_.gpu != nullptr) MILLRACE_RETURN_IF_ERROR(options_.gpu->device().wait());
  results.resize(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    const Value* const value = runner_->find(fetches[i]);
    const auto reads = locks_ == nullptr ? llvm::SmallVector<VarUse, 1>() : locks_->read_of(value);
    const HeldVars held(reads);
    MILLRACE_RETURN_IF_ERROR(copy_value(*value, results[i]));
  }
  return Ok();
}

StatusOr<std::unique_ptr<PreparedProgram>> PreparedProgram::prepare_again(int threads) const {
  ExecutorOptions options = options_;
  options.threads = threads;
  options.release_folded = false;
  return Executor(runtime_, options).prepare(given(), *scope_);
}

void PreparedProgram::share_vars(const VarLocks& locks) {
  locks_ = &locks;
  runner_->share_vars(locks);
}

std::string PreparedProgram::plan_text() const {
  return print_plan(*runner_);
}

// Compiles the program, after rewriting it if that is requested and useful.
Status PreparedProgram::compile(std::unique_ptr<Program> given) {
  runner_.reset();  // refers to the program that is replaced now
  program_ = std::move(given);
  bool changed = false;
  const bool on_gpu = options_.gpu != nullptr;
  if (options_.optimize || (options_.bf16_products && !on_gpu)) {
    if (original_ == nullptr) original_ = program_->clone();
    places_.before(*program_);
    MILLRACE_ASSIGN_OR_RETURN(
        changed, optimize(*program_, *runtime_->ops, kept_,
                          {.fuse = options_.optimize,
                           .for_gpu = on_gpu,
                           .bf16_products = options_.bf16_products && !on_gpu,
                           .split_gradients = options_.inter_op && options_.threads > 1,
                           .merge_updates = !on_gpu,
                           .release_folded = options_.release_folded,
                           .verify_passes = options_.debug_memory}));
  }
  if (changed) {
    places_.after(*program_);
  } else {
    original_.reset();
    places_ = OriginalPlaces();
  }
  // Temporaries of an earlier program may be in memory that its runner has planned.
  locals_ = std::make_unique<Scope>(scope_);
  StatusOr<std::unique_ptr<BlockRunner>> runner = BlockRunner::compile(
      *runtime_, program_->root(), *device_, 0,
      options_.optimize ? order_with_early_updates(*program_) : std::vector<const Op*>());
  if (!runner.ok()) {
    return original_ == nullptr ? std::move(runner).status()
                                : places_.translate(std::move(runner).status(), *original_);
  }
  runner_ = *std::move(runner);
  // passes may have erased all ops that read a feed
  for (const std::string& name : kept_) runner_->add_name(name);
  runner_->bind(*locals_);
  runner_->plan_memory();
  if (options_.inter_op) runner_->allow_overlap();
  runner_->observe(observer_);
  return Ok();
}

// Makes sure that the program has the fetched vars.
Status PreparedProgram::provide(const std::vector<std::string>& fetches) {
  if (runner_ == nullptr) {  // the last attempt to compile failed
    MILLRACE_RETURN_IF_ERROR(compile(given().clone()));
  }
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
  if (kept_.size() == before) return Ok();
  if (locks_ != nullptr)
    return InvalidArgument(
        "fetch: several threads run the program, expected the vars of provide()");
  MILLRACE_RETURN_IF_ERROR(compile(original_->clone()));
  // what is kept now may let passes remove another fetched var
  return provide(fetches);
}

Status Executor::check(const Program& program) const {
  return ops::check_program(*runtime_->ops, program);
}

StatusOr<std::unique_ptr<PreparedProgram>> Executor::prepare(const Program& program,
                                                             Scope& scope) const {
  return prepare(program.clone(), scope);
}

StatusOr<std::unique_ptr<PreparedProgram>> Executor::prepare(std::unique_ptr<Program> program,
                                                             Scope& scope) const {
  MILLRACE_RETURN_IF_ERROR(check_options(options_));
  std::unique_ptr<PreparedProgram> prepared(new PreparedProgram());
  prepared->runtime_ = runtime_;
  prepared->scope_ = &scope;
  prepared->device_ = std::make_unique<kernels::CpuDevice>(options_.threads, options_.seed);
  prepared->options_ = options_;
  prepared->device_->library<MemoryWatch>().on = options_.debug_memory;
  if (options_.gpu != nullptr) gpu::attach(*prepared->device_, options_.gpu);
  MILLRACE_RETURN_IF_ERROR(prepared->compile(std::move(program)));
  prepared->feed_targets_ = targets_of(*prepared->program_, "feed");
  prepared->fetch_targets_ = targets_of(*prepared->program_, "fetch");
  return prepared;
}

}  // namespace millrace::executor
