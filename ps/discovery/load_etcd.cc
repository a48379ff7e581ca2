#include <utility>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/discovery/etcd.h"
#include "ps/discovery/etcd_member.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options) {
  if (options.endpoints.empty())
    return InvalidArgument("etcd: expected at least one endpoint, found none");
  MILLRACE_ASSIGN_OR_RETURN(const EtcdModule* const module, load_functions<EtcdModule>("etcd"));
  MILLRACE_ASSIGN_OR_RETURN(EtcdMembers members, module->open(options));
  return make_etcd_directory(options, std::move(members));
}

}  // namespace millrace::ps
