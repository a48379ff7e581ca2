#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::io {

/// A secret that the processes of one job share, with which two of them show each other that they
/// belong to it, without sending it: each proves, by HMAC-SHA256, that it knows the key and has
/// seen the random bytes of the other. It neither encrypts nor protects what follows on a
/// connection; TLS does. Immutable. Thread-safety: any thread.
class JobKey {
 public:
  /// Bytes of a nonce, and of a proof.
  static constexpr size_t kBytes = 32;
  /// Which side of a connection makes a proof; so that none can be sent back as the other's.
  enum class Side { kCaller, kServer };

  /// Reads a key: the bytes of a file without white space at its end, 16 to 4096 bytes.
  /// Errors: those of read_file(); kInvalidData for another size; kInvalidArgument for a file that
  /// any user of the machine may read.
  static StatusOr<std::shared_ptr<const JobKey>> read(const std::string& path);
  /// Writes a new random key to a file, which only its owner may read, unless the file exists.
  /// Errors: kIo.
  static Status make(const std::string& path);
  /// Random bytes of a connection. Errors: kResource.
  static StatusOr<std::string> nonce();

  explicit JobKey(std::string secret) : secret_(std::move(secret)) {}
  /// \param of_caller, of_server  the nonces of a connection, kBytes each
  [[nodiscard]] std::string proof(Side side, std::string_view of_caller,
                                  std::string_view of_server) const;
  /// True if that is the proof; takes the same time for all wrong ones.
  [[nodiscard]] bool is_proof(std::string_view proof, Side side, std::string_view of_caller,
                              std::string_view of_server) const;

 private:
  std::string secret_;
};

}  // namespace millrace::io
