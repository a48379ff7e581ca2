#include "framework/base/module.h"
#include "ps/discovery/etcd.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const EtcdModule* const module, load_functions<EtcdModule>("etcd"));
  return module->make(options);
}

}  // namespace millrace::ps
