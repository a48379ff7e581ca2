#include "tools/ps/job_key.h"

#include "fleet/launch/job_environment.h"

namespace millrace::tools {

void add_job_key_flag(CLI::App& app, std::string& file) {
  app.add_option("--job-key", file,
                 "file with the secret key of the job: without TLS, peers without it are refused; "
                 "default: set by launch --job-key")
      ->type_name("FILE");
}

StatusOr<std::shared_ptr<const io::JobKey>> read_job_key(const std::string& file) {
  const std::string path = file.empty() ? fleet::job_key_file(fleet::process_environment()) : file;
  if (path.empty()) return std::shared_ptr<const io::JobKey>();
  return io::JobKey::read(path);
}

}  // namespace millrace::tools
