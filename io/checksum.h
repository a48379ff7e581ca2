#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace::io {

/// XXH3-128 of some bytes. The text form is the one that `xxh128sum` prints.
struct Checksum {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const Checksum&) const = default;
  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string text() const;
  /// Inverse of text(); nullopt for anything else.
  static std::optional<Checksum> parse(std::string_view text);
};

/// Checksum of contiguous bytes.
Checksum checksum_of(std::span<const std::byte> bytes);
Checksum checksum_of(std::string_view bytes);

/// Checksum of bytes that are added piece by piece. Movable only; not thread-safe.
class ChecksumStream {
 public:
  ChecksumStream();
  ChecksumStream(ChecksumStream&&) noexcept;
  ChecksumStream& operator=(ChecksumStream&&) noexcept;
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;
  ~ChecksumStream();

  void add(std::span<const std::byte> bytes);
  /// Checksum of all bytes added so far.
  [[nodiscard]] Checksum value() const;
  /// Starts a new checksum.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::io
