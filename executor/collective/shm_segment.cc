#include "executor/collective/shm_segment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

constexpr const char* kFolder = "/dev/shm/";
constexpr const char* kPrefix = "millrace-";
// Two per rank stay in the L2 cache while they are filled, combined and emptied.
constexpr size_t kSlotBytes = size_t{256} << 10U;
constexpr size_t kMailboxBytes = size_t{16} << 10U;

SharedBoard::Shape shape_of(int ranks) {
  return {ranks, kSlotBytes, kMailboxBytes};
}

// Owns a mapped file.
struct Mapping {
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (memory != nullptr) munmap(memory, bytes);
    if (file >= 0) close(file);
    if (!path.empty()) unlink(path.c_str());
  }

  Status map() {
    void* const place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED)
      return {StatusCode::kResource,
              fmt::format("cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno))};
    memory = static_cast<std::byte*>(place);
    return Ok();
  }

  int file = -1;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  std::string path;  ///< to be removed
};

struct flock byte_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

class ShmSegment final : public SharedSegment {
 public:
  ShmSegment(std::unique_ptr<Mapping> mapping, int ranks)
      : mapping_(std::move(mapping)),
        board_(mapping_->memory, shape_of(ranks), [this](int rank) { return is_lost(rank); }) {}

  SharedBoard& board() override { return board_; }
  [[nodiscard]] bool same_process() const override { return false; }
  StatusOr<std::shared_ptr<SharedSegment>> create(int ranks, std::string& key) override {
    return create_shm(ranks, key);
  }
  StatusOr<std::shared_ptr<SharedSegment>> attach(int ranks, int rank,
                                                  const std::string& key) override {
    return attach_shm(ranks, rank, key);
  }
  void complete() override {
    unlink(mapping_->path.c_str());
    mapping_->path.clear();
    all_joined_ = true;
  }

  // The lock is released when the process ends for any reason. Until all have joined, no rank
  // counts as lost.
  [[nodiscard]] bool is_lost(int rank) {
    if (!all_joined_) {
      struct stat info {};
      if (fstat(mapping_->file, &info) != 0 || info.st_nlink > 0) return false;
      all_joined_ = true;
    }
    struct flock lock = byte_of(rank);
    return fcntl(mapping_->file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

 private:
  std::unique_ptr<Mapping> mapping_;
  SharedBoard board_;
  bool all_joined_ = false;
};

Status take_byte(const Mapping& mapping, int rank) {
  struct flock lock = byte_of(rank);
  if (fcntl(mapping.file, F_OFD_SETLK, &lock) == 0) return Ok();
  return {StatusCode::kDistributed,
          fmt::format("cannot become rank {} of shared memory, which another process is: {}", rank,
                      std::strerror(errno))};
}

}  // namespace

StatusOr<std::shared_ptr<SharedSegment>> create_shm(int ranks, std::string& key) {
  std::random_device random;
  auto mapping = std::make_unique<Mapping>();
  mapping->bytes = SharedBoard::bytes(shape_of(ranks));
  for (int attempt = 0; attempt < 100 && mapping->file < 0; ++attempt) {
    key = fmt::format("{}{}-{:08x}{:08x}", kPrefix, getpid(), random(), random());
    const std::string path = kFolder + key;
    mapping->file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mapping->file >= 0) mapping->path = path;
    if (mapping->file < 0 && errno != EEXIST) break;
  }
  if (mapping->file < 0)
    return Status(StatusCode::kResource, fmt::format("cannot make shared memory in {}: {}", kFolder,
                                                     std::strerror(errno)));
  // reserved now: writing to a page that the machine does not have would end the process
  if (const int error = posix_fallocate(mapping->file, 0, static_cast<off_t>(mapping->bytes)))
    return Status(StatusCode::kResource,
                  fmt::format("cannot reserve {} bytes of shared memory in {}: {}", mapping->bytes,
                              kFolder, std::strerror(error)))
        .with_hint("give the machine or container more of it, or choose the engine gloo");
  MILLRACE_RETURN_IF_ERROR(mapping->map());
  MILLRACE_RETURN_IF_ERROR(take_byte(*mapping, 0));
  return std::shared_ptr<SharedSegment>(std::make_shared<ShmSegment>(std::move(mapping), ranks));
}

StatusOr<std::shared_ptr<SharedSegment>> attach_shm(int ranks, int rank, const std::string& key) {
  const std::string prefix = kPrefix;
  if (key.compare(0, prefix.size(), prefix) != 0 || key.find('/') != std::string::npos)
    return InvalidArgument("'{}' is not a name of shared memory", key);
  auto mapping = std::make_unique<Mapping>();
  mapping->bytes = SharedBoard::bytes(shape_of(ranks));
  mapping->file = open((kFolder + key).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat info {};
  if (mapping->file < 0 || fstat(mapping->file, &info) != 0) {
    return Status(StatusCode::kDistributed, fmt::format("cannot open the shared memory {}{}: {}",
                                                        kFolder, key, std::strerror(errno)))
        .with_hint("are all ranks on one machine? the engine gloo works between machines");
  }
  if (static_cast<size_t>(info.st_size) != mapping->bytes)
    return Status(StatusCode::kDistributed,
                  fmt::format("shared memory {}{} has {} bytes, expected {} for {} ranks", kFolder,
                              key, info.st_size, mapping->bytes, ranks));
  MILLRACE_RETURN_IF_ERROR(mapping->map());
  MILLRACE_RETURN_IF_ERROR(take_byte(*mapping, rank));
  return std::shared_ptr<SharedSegment>(std::make_shared<ShmSegment>(std::move(mapping), ranks));
}

}  // namespace millrace::executor
