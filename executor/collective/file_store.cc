#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "executor/collective/store.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/polled_deadline.h"

namespace millrace::executor {
namespace {

namespace fs = std::filesystem;
constexpr auto kFileStoreBetweenLooks = std::chrono::milliseconds(5);

class FileStore final : public Store {
 public:
  explicit FileStore(fs::path folder) : folder_(std::move(folder)) {}

  Status set(const std::string& key, const std::string& value) override {
    return write_file_atomically(path_of(key).string(), value, Replace::kYes);
  }

  StatusOr<std::string> get(const std::string& key, int64_t timeout_ms) override {
    PolledDeadline deadline{std::chrono::milliseconds(timeout_ms)};
    for (;;) {
      std::optional<std::string> value = read(key);
      if (value) return *std::move(value);
      if (deadline.has_passed()) {
        return Status(StatusCode::kDistributed,
                      fmt::format("waited {} ms for '{}' in the folder {}", timeout_ms, key,
                                  folder_.string()));
      }
      std::this_thread::sleep_for(kFileStoreBetweenLooks);
    }
  }

  StatusOr<std::optional<std::string>> find(const std::string& key) override { return read(key); }

 private:
  // Keys contain slashes and similar characters.
  [[nodiscard]] fs::path path_of(const std::string& key) const {
    std::string name = "key-";
    for (const char c : key) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      name += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
    }
    return folder_ / name;
  }

  [[nodiscard]] std::optional<std::string> read(const std::string& key) const {
    std::ifstream file(path_of(key), std::ios::binary);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  fs::path folder_;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> open_file_store(const std::string& folder,
                                                 const std::string& job) {
  fs::path place = folder;
  if (!job.empty()) {
    if (job.find('/') != std::string::npos || job.front() == '.')
      return InvalidArgument("the job name '{}' cannot name a folder", job);
    place /= job;
  }
  std::error_code error;
  fs::create_directories(place, error);
  if (error)
    return IoError("cannot create the folder {} in which ranks find each other: {}", place.string(),
                   error.message());
  return std::unique_ptr<Store>(std::make_unique<FileStore>(std::move(place)));
}

}  // namespace millrace::executor
