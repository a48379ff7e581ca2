#include "fleet/roles/role_maker.h"

#include <set>

#include "framework/base/errors.h"
#include "io/checkpoint/gather.h"
#include "ps/transport/endpoint.h"

namespace millrace::fleet {
namespace {

// Checks that endpoints exist, differ, and are not empty.
Status check_endpoints(const std::vector<std::string>& endpoints, const char* what) {
  if (endpoints.empty()) return InvalidArgument("{}: expected at least one, found none", what);
  std::set<std::string> seen;
  for (const std::string& endpoint : endpoints) {
    if (endpoint.empty()) return InvalidArgument("{}: an endpoint is empty", what);
    if (!seen.insert(endpoint).second)
      return InvalidArgument("{}: '{}' occurs twice", what, endpoint);
  }
  return Ok();
}

Status check_id(int id, size_t count, const char* what) {
  if (id >= 0 && static_cast<size_t>(id) < count) return Ok();
  return InvalidArgument("current_id: expected 0 to {} for a {}, found {}", count - 1, what, id);
}

}  // namespace

const char* role_name(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kServer:
      return "server";
    case Role::kHeterWorker:
      return "heter worker";
    case Role::kAll:
      return "all";
    case Role::kCoordinator:
      return "coordinator";
  }
  return "";
}

int RoleMaker::node_num() const {
  std::set<std::string> hosts;
  for (const std::string& endpoint : worker_endpoints)
    hosts.insert(endpoint.substr(0, endpoint.rfind(':')));
  return hosts.empty() ? 1 : static_cast<int>(hosts.size());
}

StatusOr<RoleMaker> user_defined_role(const UserDefinedRole& arguments) {
  if (arguments.role != Role::kWorker && arguments.role != Role::kServer)
    return InvalidArgument("role: expected worker or server, found {}", role_name(arguments.role));
  MILLRACE_RETURN_IF_ERROR(check_endpoints(arguments.server_endpoints, "server_endpoints"));
  RoleMaker made;
  made.worker_num = arguments.worker_num;
  if (!arguments.worker_endpoints.empty()) {
    MILLRACE_RETURN_IF_ERROR(check_endpoints(arguments.worker_endpoints, "worker_endpoints"));
    const auto count = static_cast<int>(arguments.worker_endpoints.size());
    if (made.worker_num != 0 && made.worker_num != count)
      return InvalidArgument("worker_num is {}, but worker_endpoints has {}", made.worker_num,
                             count);
    made.worker_num = count;
  }
  if (made.worker_num < 1)
    return InvalidArgument("worker_num: expected at least 1, found {}", made.worker_num);
  made.role = arguments.role;
  made.id = arguments.current_id;
  made.server_endpoints = arguments.server_endpoints;
  made.worker_endpoints = arguments.worker_endpoints;
  const std::vector<std::string>& own =
      made.is_server() ? made.server_endpoints : made.worker_endpoints;
  MILLRACE_RETURN_IF_ERROR(check_id(
      made.id,
      made.is_server() ? made.server_endpoints.size() : static_cast<size_t>(made.worker_num),
      role_name(made.role)));
  if (!own.empty()) made.own_endpoint = own[static_cast<size_t>(made.id)];
  return made;
}

StatusOr<RoleMaker> user_defined_collective_role(int current_id,
                                                 const std::vector<std::string>& endpoints) {
  MILLRACE_RETURN_IF_ERROR(check_endpoints(endpoints, "worker_endpoints"));
  MILLRACE_RETURN_IF_ERROR(check_id(current_id, endpoints.size(), "worker"));
  RoleMaker made;
  made.id = current_id;
  made.worker_num = static_cast<int>(endpoints.size());
  made.worker_endpoints = endpoints;
  made.own_endpoint = endpoints[static_cast<size_t>(current_id)];
  made.is_collective = true;
  return made;
}

StatusOr<RoleMaker> symmetric_role(int rank, const std::vector<std::string>& endpoints) {
  const auto size = static_cast<int>(endpoints.size());
  if (size < 2 || size % 2 != 0)
    return InvalidArgument(
        "servers and workers alternate: expected an even number of ranks, found "
        "{}",
        size);
  if (rank < 0 || rank >= size)
    return InvalidArgument("rank: expected 0 to {}, found {}", size - 1, rank);
  RoleMaker made;
  made.role = rank % 2 == 0 ? Role::kServer : Role::kWorker;
  made.id = rank / 2;
  made.worker_num = size / 2;
  for (size_t i = 0; i < endpoints.size(); i += 2) {
    made.server_endpoints.push_back(endpoints[i]);
    made.worker_endpoints.push_back(endpoints[i + 1]);
  }
  MILLRACE_RETURN_IF_ERROR(check_endpoints(made.server_endpoints, "servers"));
  made.own_endpoint = endpoints[static_cast<size_t>(rank)];
  return made;
}

StatusOr<RoleMaker> gather_symmetric_role(io::Gather& ranks, const std::string& endpoint) {
  MILLRACE_RETURN_IF_ERROR(ps::parse_endpoint(endpoint).status());
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> endpoints, ranks.all_gather(endpoint));
  return symmetric_role(ranks.rank(), endpoints);
}

}  // namespace millrace::fleet
