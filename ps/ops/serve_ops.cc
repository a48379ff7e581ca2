#include "ps/ops/serve_ops.h"

#include <utility>

#include "executor/block_runner.h"
#include "ps/ops/large_tables.h"

namespace millrace::ps {

Status ServerRole::serve(const executor::Runtime& runtime, const Op& op, Scope& scope) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Service> service,
                            Service::create(runtime, op, scope, options_));
  if (metrics_ != nullptr) service->publish_to(*metrics_);
  std::string place = endpoint_;
  if (place.empty()) {
    const AttrValue* const attr = op.find_attr("endpoint");
    if (attr != nullptr && attr->kind() == AttrKind::kString) place = attr->string().str();
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener,
                            transport_->listen(place, *service));
  {
    const std::lock_guard lock(mutex_);
    running_ = service.get();
    if (stopped_) service->stop();
  }
  if (ready_) ready_(listener->endpoint());
  Status status = service->serve();
  const std::lock_guard lock(mutex_);
  running_ = nullptr;
  return status;
}

void ServerRole::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (running_ != nullptr) running_->stop();
}

void add_server_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<ServerRole>& role) {
  for (const char* const type :
       {"listen_and_serv", "fl_listen_and_serv", "heter_listen_and_serv"}) {
    registry.add(type, [role](const kernels::KernelSetup& setup, executor::BlockRunner& runner) {
      return executor::Control([role, op = &setup.op(), &runner](executor::ControlContext& ctx) {
        return role->serve(runner.runtime(), *op, ctx.scope);
      });
    });
  }
  add_large_table_controls(registry, std::make_shared<LargeTables>());
}

}  // namespace millrace::ps
