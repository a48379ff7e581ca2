#include "tools/ps/job_key.h"

#include "jobs/run/rank_group.h"

namespace millrace::tools {

void add_job_key_flag(CLI::App& app, std::string& file) {
  app.add_option("--job-key", file,
                 "file with the secret key of the job: without TLS, peers without it are refused; "
                 "default: set by launch --job-key")
      ->type_name("FILE");
}

StatusOr<std::shared_ptr<const io::JobKey>> read_job_key(const std::string& file) {
  return jobs::read_job_key(file);
}

}  // namespace millrace::tools
