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

/// Writes a zip archive front to back, members stored as they are, one in memory at a time, with a
/// fixed time stamp: same members, same bytes. Members and archives beyond 4 GiB take the larger
/// fields of the format (zip64). Not thread-safe.
class ZipStream {
 public:
  /// Where bytes go, in order.
  using Sink = std::function<Status(std::span<const std::string_view> pieces)>;

  explicit ZipStream(Sink sink) : sink_(std::move(sink)) {}

  /// The next member. \param pieces  its content, one piece behind the other
  /// Errors: kInvalidData for a name that is there twice or beyond 65535 bytes; those of the sink.
  Status add(const std::string& name, std::span<const std::string_view> pieces);
  /// The table of members, which ends the archive.
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
