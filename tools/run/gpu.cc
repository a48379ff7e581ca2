#include "tools/run/gpu.h"

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "executor/gpu/gpu_ops.h"
#include "executor/gpu/open_device.h"
#include "framework/base/errors.h"

namespace millrace::tools {

bool wants_gpu(const RunOptions& options) {
  return llvm::StringRef(options.devices).split(':').first == "gpu";
}

StatusOr<std::shared_ptr<gpu::Context>> open_gpu_context(const RunOptions& options) {
  if (!wants_gpu(options)) return std::shared_ptr<gpu::Context>();
  StatusOr<std::shared_ptr<gpu::Context>> context = executor::open_device(
      options.devices, {.tf32 = options.precision == "tf32", .bf16 = options.precision == "bf16"});
  if (!context.ok()) {
    Status status = std::move(context).status();
    if (status.code() == StatusCode::kInvalidArgument)
      status = Status(StatusCode::kUsage, status.message());
    return std::move(status).with_note("for --devices and --precision");
  }
  // report a missing library before the other ranks wait for this one
  if (options.ranks.engine == "nccl") {
    if (Status status = (*context)->device().collectives().status(); !status.ok())
      return std::move(status).with_note("for --engine nccl");
  }
  return context;
}

std::vector<std::string> missing_libraries(const std::shared_ptr<gpu::Context>& context) {
  return context == nullptr ? std::vector<std::string>() : context->device().info().missing;
}

std::string gpu_summary(const jobs::Session& session) {
  const executor::GpuOps* const gpu_ops =
      session.prepared == nullptr ? nullptr : session.prepared->gpu();
  if (gpu_ops == nullptr) return "";
  const executor::GpuOps::Counts counts = gpu_ops->counts();
  const gpu::Traffic& traffic = gpu_ops->context().memory().traffic();
  return fmt::format(
      "{} ops on the gpu, {} of them recorded, {} on the cpu; copied {} to the gpu ({} bytes), {} "
      "from it "
      "({} bytes); peak {} bytes of its memory",
      counts.on_gpu, gpu_ops->replays().recorded_ops(), counts.on_cpu, traffic.copies_in,
      traffic.bytes_in, traffic.copies_out, traffic.bytes_out,
      gpu_ops->context().memory().peak_bytes());
}

void write_gpu_summary(const jobs::Session& session, JsonWriter& out) {
  const executor::GpuOps* const gpu_ops =
      session.prepared == nullptr ? nullptr : session.prepared->gpu();
  if (gpu_ops == nullptr) return;
  const executor::GpuOps::Counts counts = gpu_ops->counts();
  const gpu::Memory& memory = gpu_ops->context().memory();
  out.key("gpu").begin_object();
  out.member("name", gpu_ops->context().device().info().name);
  out.member("ops_on_gpu", counts.on_gpu).member("ops_on_cpu", counts.on_cpu);
  out.member("ops_recorded", gpu_ops->replays().recorded_ops());
  out.member("copies_in", memory.traffic().copies_in);
  out.member("bytes_in", memory.traffic().bytes_in);
  out.member("copies_out", memory.traffic().copies_out);
  out.member("bytes_out", memory.traffic().bytes_out);
  out.member("peak_bytes", memory.peak_bytes()).end_object();
}

}  // namespace millrace::tools
