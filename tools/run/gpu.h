#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/json_writer.h"
#include "jobs/run/session.h"
#include "kernels/gpu/context.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// True if --devices names a GPU.
bool wants_gpu(const RunOptions& options);

/// Opens the GPUs that --devices names: gpu:N, several by gpu:N,M, or gpu:emulated, which runs the
/// GPU kernels in the memory of the process, for tests; empty if it names none. Errors: kUsage;
/// kUnimplemented if there is no such GPU.
StatusOr<std::vector<std::shared_ptr<gpu::Context>>> open_gpu_contexts(const RunOptions& options);

/// Libraries that the devices would use and did not find, with the reasons.
std::vector<std::string> missing_libraries(
    const std::vector<std::shared_ptr<gpu::Context>>& contexts);

/// "163 ops on the gpu, 2 on the cpu; copied 1 to the gpu (4096 bytes), 2 from it (12 bytes)", with
/// several devices a line for each; empty for a session without a GPU.
std::vector<std::string> gpu_summary(const jobs::Session& session);
/// Writes the same as a member "gpu" of an object; with several devices, as an array "gpus";
/// nothing without a GPU.
void write_gpu_summary(const jobs::Session& session, JsonWriter& out);

}  // namespace millrace::tools
