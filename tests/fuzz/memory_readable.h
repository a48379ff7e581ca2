#pragma once

#include <cstring>
#include <string>

#include "framework/base/errors.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::testing {

/// The bytes of a fuzzer as a file.
class MemoryReadable final : public io::ReadableFile {
 public:
  MemoryReadable(const void* data, size_t size)
      : path_("fuzzed"), bytes_(static_cast<const char*>(data), size) {}
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset)
      return InvalidData("the end of the file").in_file(path_);
    if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
    return Ok();
  }

 private:
  std::string path_;
  std::string bytes_;
};

}  // namespace millrace::testing
