#include "jobs/stats/fleet_servers.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fleet/runtime/described_bytes.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/paths.h"
#include "jobs/config/json_fields.h"

namespace millrace::jobs {
namespace {

constexpr int64_t kLargestDescription = int64_t{64} << 20;

std::string server_file(const std::string& folder, size_t server, const char* name) {
  return fmt::format("{}/pserver_{}/{}", folder, server, name);
}

// All servers have the endpoints of the job.
StatusOr<std::vector<std::string>> endpoints_in(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kLargestDescription));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  JsonFields fields(json, "");
  std::vector<std::string> endpoints;
  fields.require("endpoints").strings("endpoints", endpoints);
  if (const Status status = fields.status(); !status.ok())
    return InvalidData("{}", status.message()).in_file(path);
  return endpoints;
}

}  // namespace

bool is_fleet_folder(const std::string& folder) {
  return io::may_exist(server_file(folder, 0, "ps_desc.txt"));
}

StatusOr<std::vector<transpiler::ServerBytes>> fleet_servers(const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> endpoints,
                            endpoints_in(server_file(folder, 0, "runtime.json")));
  std::vector<transpiler::ServerBytes> servers;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    const std::string path = server_file(folder, i, "ps_desc.txt");
    MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kLargestDescription));
    StatusOr<fleet::DescribedBytes> bytes =
        fleet::described_bytes(text, static_cast<int>(i), static_cast<int>(endpoints.size()));
    if (!bytes.ok()) return std::move(bytes).status().in_file(path);
    servers.push_back({endpoints[i], bytes->param_bytes, bytes->state_bytes, bytes->tables});
  }
  return servers;
}

}  // namespace millrace::jobs
