#include "executor/parallel/worker_programs.h"

#include <algorithm>

#include "executor/parallel/replica.h"
#include "framework/base/errors.h"

namespace millrace::executor {
namespace worker_programs {

// What threads with common variables cannot run.
Status check_shareable(const PreparedProgram& program) {
  constexpr std::string_view kThreads = "threads that share the variables of a program";
  if (program.options().gpu != nullptr) return Unimplemented("{}, on a GPU", kThreads);
  if (program.options().inter_op) return Unimplemented("{}, with inter_op", kThreads);
  if (program.runtime().rings != nullptr)
    return Unimplemented("{}, in one of several processes", kThreads);
  if (program.given().block_count() > 1)
    return Unimplemented("{} with loops or branches", kThreads);
  return Ok();
}

}  // namespace worker_programs

StatusOr<std::unique_ptr<WorkerPrograms>> WorkerPrograms::create(
    PreparedProgram& program, int count, const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(worker_programs::check_shareable(program));
  std::unique_ptr<WorkerPrograms> workers(new WorkerPrograms(program, fetches));
  const int threads = std::max(1, program.options().threads / count);
  for (int worker = 0; worker < count; ++worker) {
    MILLRACE_ASSIGN_OR_RETURN(auto own, program.prepare_again(threads));
    own->set_random_position(program.random_position() + static_cast<uint64_t>(worker) * kSeedStep);
    MILLRACE_RETURN_IF_ERROR(own->provide(fetches));
    workers->programs_.push_back(std::move(own));
  }
  // compiling has created all variables
  if (const std::string names = VarLocks::overlap_in(program.scope()); !names.empty())
    return Unimplemented("threads that share the variables {}, which have memory in common", names);
  workers->locks_ = std::make_unique<VarLocks>(program.scope());
  for (const auto& own : workers->programs_) own->share_vars(*workers->locks_);
  return workers;
}

}  // namespace millrace::executor
