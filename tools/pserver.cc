// pserver: one parameter server of a transpiled job.

#include "jobs/config/slices_file.h"
#include "tools/ps/run_server.h"
#include "tools/verbs.h"

int millrace::tools::pserver(int argc, char** argv) {
  Tool tool({.name = "pserver",
             .purpose = std::string(kPserverPurpose),
             .examples = {"pserver --program OUT/pserver_0/__model__ --startup "
                          "OUT/pserver_0/__startup__ \\\n"
                          "      --slices OUT/slices.json --params init.npz --endpoint "
                          "127.0.0.1:6174"},
             .exit_codes = {{0, "all trainers have completed"},
                            {4, "an op failed while running"},
                            {5, "a trainer was lost, or a deadline expired"},
                            {130, "interrupted (SIGINT)"},
                            {143, "terminated (SIGTERM)"}},
             .notes = {},
             .unread = {"--output"}});
  jobs::Server::Files files;
  PsFlags flags;
  std::string allow_dir;
  CLI::App& app = tool.app();
  app.option_defaults()->group("Served program");
  app.add_option("--program", files.program, "program of the server")->type_name("FILE");
  app.add_option("--startup", files.startup, "its startup program")->type_name("FILE");
  app.add_option("--params", files.params,
                 "whole variables as npz or a folder with one file per variable; the server loads "
                 "its slices")
      ->type_name("PATH");
  app.add_option("--load-program", files.load_program,
                 "program that loads the variables of this server (io_load) from below --allow-dir")
      ->type_name("FILE");
  app.add_option("--allow-dir", allow_dir, "folder for the files of checkpoint requests")
      ->type_name("DIR");
  app.add_option("--profile", flags.trace, "write a Chrome trace of the calls")->type_name("FILE");
  add_job_flags(tool, flags);
  add_server_flags(tool, flags);
  app.option_defaults()->group("Options");
  return tool.run(argc, argv, [&]() -> millrace::StatusOr<int> {
    for (const char* const flag :
         {"--snapshot-every", "--snapshot-interval-ms", "--snapshot-durable"}) {
      if (flags.snapshot_dir.empty() && tool.differs(flag))
        tool.log(LogLevel::kWarning, std::string(flag) + " has no effect without --snapshot-dir");
    }
    if (tool.differs("--deadline-ms"))
      tool.log(LogLevel::kWarning, "--deadline-ms has no effect: trainers set it for their calls");
    flags.trace_name = flags.endpoint;
    files.slices = jobs::find_slices(flags.slices, files.program);
    return run_server(tool, files, flags, allow_dir);
  });
}
