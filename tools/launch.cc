// launch: starts the processes of a job on this machine.

#include "tools/launch/launch.h"

#include "tools/common/tool.h"
#include "tools/verbs.h"

int millrace::tools::launch(int argc, char** argv) {
  Tool tool({.name = "launch",
             .purpose = std::string(kLaunchPurpose),
             .examples = {"launch --nproc_per_node 2 -- run-program --program main.pb ...",
                          "launch --server_num 2 --trainer_num 4 -- ./my_cpp_trainer",
                          "launch --servers 127.0.0.1:6174 --trainers 127.0.0.1:6180 \\\n"
                          "      -- run-program --role auto ..."},
             .exit_codes = {{0, "all children exited with 0"},
                            {130, "interrupted (SIGINT)"},
                            {143, "terminated (SIGTERM)"}},
             .notes = {"Otherwise the exit code is that of the first child that failed, or 128 + "
                       "the number of the signal that ended it."},
             .unread = {"--threads", "--seed", "--max-model-bytes", "--max-tensor-bytes"}});
  LaunchFlags flags;
  add_launch_options(tool, flags);
  flags.arguments.assign(argv + 1, argv + argc);
  return tool.run(argc, argv, [&] { return run_launch(tool, flags); });
}
