#include "framework/base/errors.h"
#include "ps/table/cold_store.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<ColdStore>> open_rocks_store(const std::string& path) {
  return Unimplemented("rows on disk in {}: this build has no RocksDB", path);
}

}  // namespace millrace::ps
