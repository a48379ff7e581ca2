#include "tools/ps/etcd.h"

#include "tools/common/numbers.h"

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
      ->check(whole_number(int64_t{1}, kLongestLease))
      ->type_name("N");
}

}  // namespace millrace::tools
