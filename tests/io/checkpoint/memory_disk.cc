#include "tests/io/checkpoint/memory_disk.h"

#include <algorithm>
#include <cstring>

namespace millrace::testing {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string without_slash(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

Status missing(const std::string& path) {
  return Status(StatusCode::kNotFound, "cannot open: no such file").in_file(path);
}

}  // namespace

class MemoryDisk::Writing final : public io::WritableFile {
 public:
  Writing(MemoryDisk& disk, std::string path, std::shared_ptr<Content> content)
      : disk_(disk), path_(std::move(path)), content_(std::move(content)) {}
  Status write(std::span<const std::string_view> pieces) override {
    const std::lock_guard lock(disk_.mutex_);
    MILLRACE_RETURN_IF_ERROR(disk_.count_call(path_));
    for (const std::string_view piece : pieces) {
      uint64_t used = 0;
      for (const auto& [path, content] : disk_.names_)
        used += content == nullptr ? 0 : content->now.size();
      const uint64_t room = disk_.capacity_ ? *disk_.capacity_ - used : piece.size();
      content_->now += piece.substr(0, room);
      if (room < piece.size())
        return Status(StatusCode::kResource, "cannot write: no space").in_file(path_);
    }
    return Ok();
  }
  Status sync() override {
    const std::lock_guard lock(disk_.mutex_);
    MILLRACE_RETURN_IF_ERROR(disk_.count_call(path_));
    if (disk_.syncs_) content_->durable = content_->now;
    return Ok();
  }
  Status close() override {
    const std::lock_guard lock(disk_.mutex_);
    return disk_.count_call(path_);
  }

 private:
  MemoryDisk& disk_;
  std::string path_;
  std::shared_ptr<Content> content_;
};

class MemoryDisk::Reading final : public io::ReadableFile {
 public:
  Reading(std::string path, std::string bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset)
      return Status(StatusCode::kInvalidData, "the end of the file").in_file(path_);
    std::memcpy(to.data(), bytes_.data() + offset, to.size());
    return Ok();
  }

 private:
  std::string path_;
  std::string bytes_;
};

Status MemoryDisk::count_call(const std::string& path) {
  const int64_t call = calls_++;
  const bool dark = power_ends_at_ && call >= *power_ends_at_;
  if (!dark && fails_at_ != call) return Ok();
  return Status(StatusCode::kIo, "the disk fails").in_file(path);
}

std::shared_ptr<MemoryDisk> MemoryDisk::after_loss(Loss loss, uint64_t kept_bytes) const {
  auto disk = std::make_shared<MemoryDisk>();
  for (const auto& [path, content] : loss == Loss::kAll ? durable_ : names_) {
    std::shared_ptr<Content> copy;
    if (content != nullptr) {
      copy = std::make_shared<Content>();
      copy->now = loss == Loss::kNothing ? content->now : content->durable;
      if (loss == Loss::kLaterBytes && copy->now.size() < content->now.size()) {
        const uint64_t kept = std::max<uint64_t>(kept_bytes, copy->now.size());
        copy->now = content->now.substr(0, std::min<uint64_t>(kept, content->now.size()));
      }
      copy->durable = copy->now;
    }
    disk->names_[path] = std::move(copy);
  }
  // If a folder is lost, the names in it are lost.
  for (auto it = disk->names_.begin(); it != disk->names_.end();) {
    const std::string folder = folder_of(it->first);
    const bool reachable = folder.empty() || disk->names_.contains(folder);
    it = reachable ? std::next(it) : disk->names_.erase(it);
  }
  disk->durable_ = disk->names_;
  return disk;
}

std::set<std::string> MemoryDisk::files() const {
  std::set<std::string> paths;
  for (const auto& [path, content] : names_)
    if (content != nullptr) paths.insert(path);
  return paths;
}

StatusOr<std::unique_ptr<io::WritableFile>> MemoryDisk::create(const std::string& path,
                                                               const io::NewFile&) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(count_call(path));
  if (!names_.contains(folder_of(path))) return missing(path);
  auto content = std::make_shared<Content>();
  if (!names_.emplace(path, content).second)
    return Status(StatusCode::kUsage, "the file exists already").in_file(path);
  return std::unique_ptr<io::WritableFile>(std::make_unique<Writing>(*this, path, content));
}

StatusOr<std::unique_ptr<io::ReadableFile>> MemoryDisk::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return missing(path);
  if (found->second == nullptr)
    return Status(StatusCode::kInvalidData, "expected a regular file, found a folder")
        .in_file(path);
  return std::unique_ptr<io::ReadableFile>(std::make_unique<Reading>(path, found->second->now));
}

Status MemoryDisk::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(count_call(to));
  const auto found = names_.find(from);
  if (found == names_.end()) return missing(from);
  const std::shared_ptr<Content> content = found->second;
  names_.erase(found);
  names_[to] = content;
  return Ok();
}

Status MemoryDisk::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(count_call(path));
  names_.erase(path);
  return Ok();
}

Status MemoryDisk::remove_folder(const std::string& path) {
  return remove(without_slash(path));
}

StatusOr<bool> MemoryDisk::make_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(count_call(path));
  const std::string folder = without_slash(path);
  if (!folder_of(folder).empty() && !names_.contains(folder_of(folder))) return missing(path);
  return names_.emplace(folder, nullptr).second;
}

void MemoryDisk::put(const std::string& path, std::string bytes) {
  names_.at(path)->now = std::move(bytes);
}

Status MemoryDisk::sync_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(count_call(path));
  const std::string folder = path == "." ? "" : without_slash(path);
  if (!folder.empty() && !names_.contains(folder)) return missing(path);
  if (!syncs_) return Ok();
  std::erase_if(durable_, [&](const auto& entry) {
    return folder_of(entry.first) == folder && !names_.contains(entry.first);
  });
  for (const auto& [name, content] : names_)
    if (folder_of(name) == folder) durable_[name] = content;
  return Ok();
}

StatusOr<std::vector<std::string>> MemoryDisk::list(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::string folder = without_slash(path);
  if (!names_.contains(folder)) return missing(path);
  std::vector<std::string> inside;
  for (const auto& [name, content] : names_)
    if (folder_of(name) == folder) inside.push_back(name.substr(folder.size() + 1));
  return inside;
}

}  // namespace millrace::testing
