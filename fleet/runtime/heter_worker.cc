#include "fleet/runtime/heter_worker.h"

#include <utility>
#include <vector>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"

namespace millrace::fleet {

StatusOr<std::unique_ptr<HeterWorker>> HeterWorker::create(const Program& program,
                                                           ps::ServerOptions service) {
  if (!service.snapshot_root.empty())
    return Unimplemented("snapshots of heter workers, which keep nothing between calls");
  return std::unique_ptr<HeterWorker>(new HeterWorker(program, std::move(service)));
}

Status HeterWorker::serve(ps::Transport& transport, const std::string& endpoint) {
  const auto runtime = executor::make_runtime("");
  {
    const std::lock_guard lock(mutex_);
    // the caller keeps the transport
    role_ = std::make_shared<ps::ServerRole>(
        std::shared_ptr<ps::Transport>(std::shared_ptr<void>(), &transport), service_, endpoint);
    if (stopped_) role_->stop();
    ps::add_server_controls(runtime->controls, role_);
  }
  const executor::Executor executor(
      runtime, {.threads = service_.threads, .seed = service_.seed, .optimize = false});
  MILLRACE_ASSIGN_OR_RETURN(const auto prepared, executor.prepare(program_, scope_));
  std::vector<Value> none;
  return prepared->run({}, {}, none);
}

void HeterWorker::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (role_ != nullptr) role_->stop();
}

}  // namespace millrace::fleet
