#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/pass.h"

namespace millrace::transpiler {

/// What the pass of nccl2 mode needs to know about the job.
struct Nccl2Plan final : Facts {
  std::vector<std::string> endpoints;
  int64_t trainer_id = 0;
  int64_t communicators = 1;
  bool hierarchical = false;
  int64_t inter_nranks = 0;
};

/// What its only pass does (JobPass). Startup: declares a var per communicator id and appends the
/// op that creates the ids.
Status nccl2_generate_ids(Program& main, PassContext& context, Nccl2Plan& plan);

}  // namespace millrace::transpiler
