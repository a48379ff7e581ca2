// checkpoint: list, show, verify, reshard, convert, export, compare and remove checkpoints.

#include <fmt/format.h>

#include "tools/checkpoint/options.h"
#include "tools/common/signal_watch.h"
#include "tools/verbs.h"

int millrace::tools::checkpoint(int argc, char** argv) {
  Tool tool({.name = "checkpoint",
             .purpose = std::string(kCheckpointPurpose),
             .examples = {"checkpoint list ckpt", "checkpoint show ckpt fc_0.w_0",
                          "checkpoint verify ckpt --step 1200",
                          "checkpoint reshard ckpt --pservers a:1,b:1,c:1 -o ckpt3/step-1200",
                          "checkpoint convert model --to safetensors -o w.safetensors",
                          "checkpoint export ckpt --model-dir infer -o served",
                          "checkpoint diff ckpt/step-1 ckpt/step-2 --rtol 1e-6",
                          "checkpoint gc ckpt --keep 5"},
             .exit_codes = {{1, "verify found damage, or diff found differences"},
                            {130, "interrupted (SIGINT); partial output is removed"},
                            {143, "terminated (SIGTERM); likewise"}},
             .notes = {"A path is a folder with manifest.json, a folder of step-<n> folders, a "
                       "safetensors file, an npz archive, a combined parameter file (with "
                       "--program), a folder of one file a var, or a folder of the original's "
                       "distributed checkpoints (*.metadata). Pickles in the latter are read by a "
                       "restricted reader that executes no code."},
             .unread = {"--seed"}});
  CheckpointFlags flags;
  add_checkpoint_options(tool, flags);
  return tool.run(argc, argv, [&]() -> StatusOr<int> {
    SignalWatch watch;
    watch.start({});
    finish_flags(tool, watch.stopped(), flags);
    StatusOr<int> done = run_checkpoint(tool, flags);
    if (watch.seen() == 0 || done.ok()) return done;
    tool.log(LogLevel::kWarning,
             fmt::format("stopped by signal {}; partial output was removed", watch.seen()));
    return watch.exit_code();
  });
}
