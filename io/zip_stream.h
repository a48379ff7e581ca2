#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

/// Writes a zip archive as a stream. Members are stored uncompressed, one in memory at a time, with
/// a fixed time stamp: equal members produce equal bytes. Members and archives above 4 GiB use the
/// zip64 extension. Not thread-safe.
class ZipStream {
 public:
  /// Receives the bytes of the archive in order.
  using Sink = std::function<Status(std::span<const std::string_view> pieces)>;

  explicit ZipStream(Sink sink) : sink_(std::move(sink)) {}

  /// Writes the next member. \param pieces  its content, as consecutive pieces
  /// Errors: kInvalidData for a name that occurs twice or is longer than 65535 bytes; those of the
  /// sink.
  Status add(const std::string& name, std::span<const std::string_view> pieces);
  /// Writes the table of members, which ends the archive.
  Status finish();

 private:
  struct Member {
    std::string name;
    uint64_t begin = 0;
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };
  Status write(std::span<const std::string_view> pieces);

  Sink sink_;
  uint64_t at_ = 0;
  std::vector<Member> members_;
  std::set<std::string> names_;
};

}  // namespace millrace::io
