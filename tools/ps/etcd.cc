#include "tools/ps/etcd.h"

#include <utility>

namespace millrace::tools {

void add_etcd_flags(Tool& tool, std::vector<std::string>& members, int64_t& lease_s) {
  constexpr int64_t kLongestLease = 3600;
  CLI::App& app = tool.app();
  app.add_option("--etcd", members,
                 "members of an etcd cluster, host:port, separated by commas: servers register "
                 "themselves there under the endpoints that the programs name")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--etcd-lease-s", lease_s, "seconds that a dead server stays registered")
      ->check(CLI::Range(int64_t{1}, kLongestLease).description(""))
      ->type_name("N");
}

StatusOr<std::shared_ptr<ps::Directory>> open_etcd(const Tool& tool,
                                                   const std::vector<std::string>& members,
                                                   const std::optional<ps::TlsFiles>& tls,
                                                   const std::string& job,
                                                   std::chrono::seconds lease) {
  ps::EtcdOptions options;
  options.endpoints = members;
  options.tls = tls;
  options.job = job.empty() ? "default" : job;
  options.lease = lease;
  options.log = [&tool](const std::string& line) { tool.log(LogLevel::kWarning, line); };
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::Directory> directory,
                            ps::make_etcd_directory(options));
  return std::shared_ptr<ps::Directory>(std::move(directory));
}

}  // namespace millrace::tools
