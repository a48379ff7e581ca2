#include "io/zip_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <zlib.h>

#include "framework/base/errors.h"

// Layout: PKWARE APPNOTE 6.3.9, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14
// to 4.3.16 (its end, zip64 and not) and 4.5.3 (zip64 field).
namespace millrace::io {
namespace {

constexpr uint16_t kZipStreamVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kUtf8 = 1U << 11U;
constexpr uint16_t kFirstDate = (1U << 5U) | 1U;  // 1 January 1980, the earliest date of the format
constexpr uint16_t kField64 = 1;
constexpr uint32_t kBeyond32 = std::numeric_limits<uint32_t>::max();
constexpr uint16_t kBeyond16 = std::numeric_limits<uint16_t>::max();

class Bytes {
 public:
  template <typename T>
  Bytes& put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      text_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xFFU);
    return *this;
  }
  Bytes& put(const Bytes& other) {
    text_ += other.text_;
    return *this;
  }
  [[nodiscard]] std::string_view view() const { return text_; }
  [[nodiscard]] uint16_t size16() const { return static_cast<uint16_t>(text_.size()); }

 private:
  std::string text_;
};

uint32_t low32(uint64_t number) {
  return static_cast<uint32_t>(std::min<uint64_t>(number, kBeyond32));
}

uint16_t low16(uint64_t number) {
  return static_cast<uint16_t>(std::min<uint64_t>(number, kBeyond16));
}

// The zip64 extra field with the numbers that are too large for the regular fields.
Bytes field64(std::initializer_list<uint64_t> numbers) {
  Bytes content;
  for (const uint64_t number : numbers)
    if (number >= kBeyond32) content.put(number);
  Bytes field;
  if (content.size16() > 0) field.put(kField64).put(content.size16()).put(content);
  return field;
}

uint16_t flags_of(std::string_view name) {
  const bool plain =
      std::ranges::all_of(name, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  return plain ? 0 : kUtf8;
}

}  // namespace

Status ZipStream::write(std::span<const std::string_view> pieces) {
  for (const std::string_view piece : pieces) at_ += piece.size();
  return sink_(pieces);
}

Status ZipStream::add(const std::string& name, std::span<const std::string_view> pieces) {
  if (name.size() >= kBeyond16)
    return InvalidData("a member name of {} bytes, above {}", name.size(), kBeyond16 - 1);
  if (!names_.insert(name).second)
    return InvalidData("two members of the archive would have the name '{}'", name);
  Member member{name, at_, 0, 0};
  for (const std::string_view piece : pieces) {
    member.bytes += piece.size();
    member.crc = static_cast<uint32_t>(
        ::crc32_z(member.crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
  }
  const bool large = member.bytes >= kBeyond32;
  // In a local header the zip64 field has both sizes, or is absent.
  const Bytes field = large ? field64({member.bytes, member.bytes}) : Bytes();
  Bytes header;
  header.put(uint32_t{0x04034b50}).put(large ? kVersion64 : kZipStreamVersion).put(flags_of(name));
  header.put(uint16_t{0}).put(uint16_t{0}).put(kFirstDate).put(member.crc);
  header.put(low32(member.bytes)).put(low32(member.bytes));
  header.put(static_cast<uint16_t>(name.size())).put(field.size16());
  const std::string_view begin[] = {header.view(), name, field.view()};
  MILLRACE_RETURN_IF_ERROR(write(begin));
  MILLRACE_RETURN_IF_ERROR(write(pieces));
  members_.push_back(std::move(member));
  return Ok();
}

Status ZipStream::finish() {
  const uint64_t begin = at_;
  for (const Member& member : members_) {
    const Bytes field = field64({member.bytes, member.bytes, member.begin});
    const uint16_t version = field.size16() > 0 ? kVersion64 : kZipStreamVersion;
    Bytes entry;
    entry.put(uint32_t{0x02014b50}).put(version).put(version).put(flags_of(member.name));
    entry.put(uint16_t{0}).put(uint16_t{0}).put(kFirstDate).put(member.crc);
    entry.put(low32(member.bytes)).put(low32(member.bytes));
    entry.put(static_cast<uint16_t>(member.name.size())).put(field.size16());
    entry.put(uint16_t{0}).put(uint16_t{0}).put(uint16_t{0}).put(uint32_t{0});
    entry.put(low32(member.begin));
    const std::string_view pieces[] = {entry.view(), member.name, field.view()};
    MILLRACE_RETURN_IF_ERROR(write(pieces));
  }
  const uint64_t bytes = at_ - begin;
  const auto count = static_cast<uint64_t>(members_.size());
  Bytes end;
  if (count >= kBeyond16 || bytes >= kBeyond32 || begin >= kBeyond32) {
    constexpr uint64_t kRestOfRecord = 44;
    const uint64_t at = at_;
    end.put(uint32_t{0x06064b50}).put(kRestOfRecord).put(kVersion64).put(kVersion64);
    end.put(uint32_t{0}).put(uint32_t{0}).put(count).put(count).put(bytes).put(begin);
    end.put(uint32_t{0x07064b50}).put(uint32_t{0}).put(at).put(uint32_t{1});
  }
  end.put(uint32_t{0x06054b50}).put(uint16_t{0}).put(uint16_t{0});
  end.put(low16(count)).put(low16(count)).put(low32(bytes)).put(low32(begin)).put(uint16_t{0});
  const std::string_view piece = end.view();
  return write({&piece, 1});
}

}  // namespace millrace::io
