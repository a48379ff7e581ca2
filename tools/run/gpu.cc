#include "tools/run/gpu.h"

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "executor/gpu/gpu_ops.h"
#include "executor/gpu/open_device.h"
#include "framework/base/errors.h"

namespace millrace::tools {
namespace {

// Of the devices of a session; empty for CPU devices.
std::vector<const executor::GpuOps*> gpus_of(const jobs::Session& session) {
  std::vector<const executor::GpuOps*> gpus;
  const int devices = session.parallel == nullptr ? 1 : session.parallel->device_count();
  for (int d = 0; d < devices; ++d) {
    const executor::GpuOps* const gpu_ops =
        session.parallel == nullptr ? session.prepared->gpu() : session.parallel->gpu(d);
    if (gpu_ops != nullptr) gpus.push_back(gpu_ops);
  }
  return gpus;
}

void write_device(const executor::GpuOps& gpu_ops, JsonWriter& out) {
  const executor::GpuOps::Counts counts = gpu_ops.counts();
  const gpu::Memory& memory = gpu_ops.context().memory();
  out.begin_object();
  out.member("name", gpu_ops.context().device().info().name);
  out.member("ops_on_gpu", counts.on_gpu).member("ops_on_cpu", counts.on_cpu);
  out.member("ops_recorded", gpu_ops.replays().recorded_ops());
  out.member("copies_in", memory.traffic().copies_in);
  out.member("bytes_in", memory.traffic().bytes_in);
  out.member("copies_out", memory.traffic().copies_out);
  out.member("bytes_out", memory.traffic().bytes_out);
  out.member("peak_bytes", memory.peak_bytes()).end_object();
}

}  // namespace

bool wants_gpu(const RunOptions& options) {
  return llvm::StringRef(options.devices).split(':').first == "gpu";
}

StatusOr<std::vector<std::shared_ptr<gpu::Context>>> open_gpu_contexts(const RunOptions& options) {
  using Contexts = std::vector<std::shared_ptr<gpu::Context>>;
  if (!wants_gpu(options)) return Contexts();
  StatusOr<Contexts> contexts = executor::open_devices(
      options.devices, {.tf32 = options.precision == "tf32", .bf16 = options.precision == "bf16"});
  if (!contexts.ok()) {
    Status status = std::move(contexts).status();
    if (status.code() == StatusCode::kInvalidArgument)
      status = Status(StatusCode::kUsage, status.message());
    return std::move(status).with_note("for --devices and --precision");
  }
  // report a missing library before the other ranks wait for this one
  if (options.ranks.engine == "nccl") {
    if (Status status = contexts->front()->device().collectives().status(); !status.ok())
      return std::move(status).with_note("for --engine nccl");
  }
  return contexts;
}

std::vector<std::string> missing_libraries(
    const std::vector<std::shared_ptr<gpu::Context>>& contexts) {
  return contexts.empty() ? std::vector<std::string>() : contexts.front()->device().info().missing;
}

std::vector<std::string> gpu_summary(const jobs::Session& session) {
  std::vector<std::string> lines;
  for (const executor::GpuOps* const gpu_ops : gpus_of(session)) {
    const std::string device =
        session.parallel == nullptr ? "" : fmt::format("device {}: ", lines.size());
    lines.push_back(device + gpu_ops->summary());
  }
  return lines;
}

void write_gpu_summary(const jobs::Session& session, JsonWriter& out) {
  const std::vector<const executor::GpuOps*> gpus = gpus_of(session);
  if (gpus.empty()) return;
  if (session.parallel == nullptr) {
    out.key("gpu");
    write_device(*gpus.front(), out);
    return;
  }
  out.key("gpus").begin_array();
  for (const executor::GpuOps* const gpu_ops : gpus) write_device(*gpu_ops, out);
  out.end_array();
}

}  // namespace millrace::tools
