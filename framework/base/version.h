#pragma once

#include <string_view>

namespace millrace {

/// What --version and bug reports show about a program. All views are static.
struct VersionInfo {
  std::string_view version;     ///< "major.minor.patch"
  std::string_view commit;      ///< first 12 digits as of the last configure; "unknown" outside git
  std::string_view build_type;  ///< CMake's build type, for example "Release"
  std::string_view compiler;    ///< name and version
};

/// The version information of this build. Thread-safety: pure.
VersionInfo version_info();

}  // namespace millrace
