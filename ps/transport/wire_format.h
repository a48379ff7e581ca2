#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::ps {

/// First bytes of every message; see proto/ps_service.proto.
inline constexpr std::string_view kWireMark = "MLR1";
/// Version of what the heads mean.
inline constexpr uint32_t kWireVersion = 1;
/// Mark and length of the head.
inline constexpr size_t kPreludeBytes = 8;

}  // namespace millrace::ps
