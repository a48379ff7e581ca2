#include "io/checkpoint/stoppable_calls.h"

#include <utility>

namespace millrace::io {
namespace {

class StoppableWritable final : public WritableFile {
 public:
  StoppableWritable(std::unique_ptr<WritableFile> file, const std::atomic<bool>& stop)
      : file_(std::move(file)), stop_(stop) {}
  Status write(std::span<const std::string_view> pieces) override {
    return stop_ ? stopped_error() : file_->write(pieces);
  }
  Status sync() override { return stop_ ? stopped_error() : file_->sync(); }
  Status close() override { return file_->close(); }

 private:
  std::unique_ptr<WritableFile> file_;
  const std::atomic<bool>& stop_;
};

class StoppableReadable final : public ReadableFile {
 public:
  StoppableReadable(std::unique_ptr<ReadableFile> file, const std::atomic<bool>& stop)
      : file_(std::move(file)), stop_(stop) {}
  [[nodiscard]] const std::string& path() const override { return file_->path(); }
  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    return stop_ ? stopped_error() : file_->read(offset, to);
  }
  void will_read(uint64_t offset, uint64_t bytes) const override {
    file_->will_read(offset, bytes);
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  const std::atomic<bool>& stop_;
};

// Removing and listing are not stopped.
class StoppableCalls final : public ForwardedFileCalls {
 public:
  StoppableCalls(std::shared_ptr<FileCalls> calls, const std::atomic<bool>& stop)
      : ForwardedFileCalls(std::move(calls)), stop_(stop) {}

  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 const NewFile& file) override {
    if (stop_) return stopped_error();
    MILLRACE_ASSIGN_OR_RETURN(auto opened, calls().create(path, file));
    std::unique_ptr<WritableFile> made =
        std::make_unique<StoppableWritable>(std::move(opened), stop_);
    return made;
  }
  StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    if (stop_) return stopped_error();
    MILLRACE_ASSIGN_OR_RETURN(auto file, calls().open(path));
    std::unique_ptr<ReadableFile> made =
        std::make_unique<StoppableReadable>(std::move(file), stop_);
    return made;
  }
  Status rename(const std::string& from, const std::string& to) override {
    return stop_ ? stopped_error() : calls().rename(from, to);
  }
  StatusOr<bool> make_folder(const std::string& path) override {
    if (stop_) return stopped_error();
    return calls().make_folder(path);
  }

 private:
  const std::atomic<bool>& stop_;
};

}  // namespace

std::shared_ptr<FileCalls> stoppable(std::shared_ptr<FileCalls> calls,
                                     const std::atomic<bool>& stop) {
  return std::make_shared<StoppableCalls>(std::move(calls), stop);
}

Status stopped_error() {
  return Status(StatusCode::kResource, "stopped before it finished");
}

}  // namespace millrace::io
