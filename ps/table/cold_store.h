#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "framework/base/status.h"

namespace millrace::ps {

/// Storage for rows of a table that are not in memory.
///
/// Thread-safety: none; each shard has its own store and calls it under its lock.
class ColdStore {
 public:
  ColdStore() = default;
  ColdStore(const ColdStore&) = delete;
  ColdStore& operator=(const ColdStore&) = delete;
  virtual ~ColdStore() = default;

  /// Looks up several keys. \param found  called with position and row of each key that exists
  virtual Status get(std::span<const uint64_t> keys,
                     const std::function<Status(size_t, std::span<const float>)>& found) = 0;
  /// Stores a row; it may be written only by the next flush().
  virtual Status put(uint64_t key, std::span<const float> row) = 0;
  virtual Status erase(uint64_t key) = 0;
  virtual Status flush() = 0;
  /// Calls the function for every row, ordered by key.
  virtual Status visit(const std::function<Status(uint64_t, std::span<const float>)>& visitor) = 0;
};

/// Opens a store in a folder, which is created if it does not exist; existing rows are kept.
/// Errors: kUnimplemented in a build without RocksDB; kIo with the path; those of load_module()
/// (framework/base/module.h).
StatusOr<std::unique_ptr<ColdStore>> open_rocks_store(const std::string& path);
/// Entry point of the module "rocksdb".
struct RocksModule {
  decltype(&open_rocks_store) open;
};

}  // namespace millrace::ps
