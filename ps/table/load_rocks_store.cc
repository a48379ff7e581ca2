#include "framework/base/module.h"
#include "ps/table/cold_store.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<ColdStore>> open_rocks_store(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const RocksModule* const module,
                            load_functions<RocksModule>("rocksdb"));
  return module->open(path);
}

}  // namespace millrace::ps
