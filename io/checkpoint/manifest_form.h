#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/checkpoint/checksum.h"

/// What writing and reading `manifest.json` must agree on.
namespace millrace::io {

inline constexpr std::string_view kManifestSchema = "millrace.checkpoint";
inline constexpr int64_t kManifestVersion = 1;
inline constexpr std::string_view kChecksumMember = "checksum";

/// The end of the file; the checksum is that of all bytes before it.
std::string checksum_tail(const Checksum& checksum);

}  // namespace millrace::io
