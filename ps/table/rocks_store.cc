#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/table/cold_store.h"

namespace millrace::ps {
namespace {

/// Bytes of rows collected before they are written.
constexpr size_t kBatchBytes = size_t{4} << 20U;

// Big-endian, so that the store orders rows by key.
std::string encode(uint64_t key) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[7 - i] = static_cast<char>(key >> (8 * i) & 0xffU);
  return bytes;
}

uint64_t decode(const rocksdb::Slice& bytes) {
  uint64_t key = 0;
  for (size_t i = 0; i < bytes.size(); ++i) key = key << 8U | static_cast<unsigned char>(bytes[i]);
  return key;
}

std::vector<float> floats_of(const rocksdb::Slice& bytes) {
  std::vector<float> row(bytes.size() / sizeof(float));
  if (!row.empty()) std::memcpy(row.data(), bytes.data(), row.size() * sizeof(float));
  return row;
}

class RocksStore final : public ColdStore {
 public:
  RocksStore(std::string path, std::unique_ptr<rocksdb::DB> db)
      : path_(std::move(path)), db_(std::move(db)) {
    // No log: rows that are lost with the process are not in a checkpoint either.
    write_.disableWAL = true;
  }

  Status get(std::span<const uint64_t> keys,
             const std::function<Status(size_t, std::span<const float>)>& found) override {
    MILLRACE_RETURN_IF_ERROR(flush());
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const uint64_t key : keys) names.push_back(encode(key));
    const std::vector<rocksdb::Slice> slices(names.begin(), names.end());
    std::vector<rocksdb::PinnableSlice> rows(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db_->MultiGet({}, db_->DefaultColumnFamily(), keys.size(), slices.data(), rows.data(),
                  statuses.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (statuses[i].IsNotFound()) continue;
      MILLRACE_RETURN_IF_ERROR(check(statuses[i]));
      const std::vector<float> row = floats_of(rows[i]);
      MILLRACE_RETURN_IF_ERROR(found(i, row));
    }
    return Ok();
  }

  Status put(uint64_t key, std::span<const float> row) override {
    batch_.Put(encode(key), rocksdb::Slice(reinterpret_cast<const char*>(row.data()),
                                           row.size() * sizeof(float)));
    return batch_.GetDataSize() >= kBatchBytes ? flush() : Ok();
  }

  Status erase(uint64_t key) override {
    batch_.Delete(encode(key));
    return Ok();
  }

  Status flush() override {
    if (batch_.Count() == 0) return Ok();
    const rocksdb::Status status = db_->Write(write_, &batch_);
    batch_.Clear();
    return check(status);
  }

  Status visit(const std::function<Status(uint64_t, std::span<const float>)>& visitor) override {
    MILLRACE_RETURN_IF_ERROR(flush());
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      const std::vector<float> row = floats_of(at->value());
      MILLRACE_RETURN_IF_ERROR(visitor(decode(at->key()), row));
    }
    return check(at->status());
  }

 private:
  [[nodiscard]] Status check(const rocksdb::Status& status) const {
    return status.ok() ? Ok() : IoError("{}: {}", path_, status.ToString());
  }

  std::string path_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteBatch batch_;
  rocksdb::WriteOptions write_;
};

StatusOr<std::unique_ptr<ColdStore>> open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return IoError("{}: {}", path, error.message());
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.keep_log_file_num = 2;
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));  // most requested keys do not exist
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
  if (!status.ok()) return IoError("{}: {}", path, status.ToString());
  return std::unique_ptr<ColdStore>(
      std::make_unique<RocksStore>(path, std::unique_ptr<rocksdb::DB>(db)));
}

constexpr RocksModule kModule{&open};

}  // namespace
}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kModule;
  return millrace::build_stamp();
}
