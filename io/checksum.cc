#include "io/checksum.h"

#include <charconv>

#include <fmt/format.h>
#include <xxhash.h>

#include "io/checksum_update.h"

namespace millrace::io {
namespace {

Checksum of_hash(XXH128_hash_t hash) {
  return {hash.high64, hash.low64};
}

// All digits are required, in lower case.
std::optional<uint64_t> parse_word(std::string_view digits) {
  uint64_t word = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), word, 16);
  const bool upper = digits.find_first_of("ABCDEF") != std::string_view::npos;
  if (error != std::errc() || end != digits.end() || upper) return std::nullopt;
  return word;
}

}  // namespace

std::string Checksum::text() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::optional<Checksum> Checksum::parse(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = parse_word(text.substr(0, 16));
  const auto low = parse_word(text.substr(16));
  if (!high || !low) return std::nullopt;
  return Checksum{*high, *low};
}

Checksum checksum_of(std::span<const std::byte> bytes) {
  ChecksumStream stream;
  stream.add(bytes);
  return stream.value();
}

Checksum checksum_of(std::string_view bytes) {
  return checksum_of(std::as_bytes(std::span(bytes)));
}

struct ChecksumStream::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_128bits_reset(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {}
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::add(std::span<const std::byte> bytes) {
  update_checksum(state_->xxh, bytes);
}

Checksum ChecksumStream::value() const {
  return of_hash(XXH3_128bits_digest(state_->xxh));
}

void ChecksumStream::reset() {
  XXH3_128bits_reset(state_->xxh);
}

}  // namespace millrace::io
