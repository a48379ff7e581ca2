#pragma once

#include <utility>

#include <fmt/format.h>

#include "framework/base/status.h"

namespace millrace {

/// Functions that create an error Status with an fmt message. Not for public headers, which must
/// not include fmt.
template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status InvalidProgram(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidProgram, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status InvalidData(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidData, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status IoError(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kIo, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace millrace
