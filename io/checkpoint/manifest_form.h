#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/checksum.h"

/// Definitions shared by the writer and the reader of `manifest.json`.
namespace millrace::io {

inline constexpr std::string_view kManifestSchema = "millrace.checkpoint";
inline constexpr int64_t kManifestVersion = 1;
inline constexpr std::string_view kChecksumMember = "checksum";

/// The last bytes of the file. The checksum covers all bytes before them.
std::string checksum_tail(const Checksum& checksum);

}  // namespace millrace::io
