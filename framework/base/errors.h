#pragma once

#include <utility>

#include <fmt/format.h>

#include "framework/base/status.h"

// Example: `return InvalidData("expected {} rows, found {}", rows, found);`. A message starts in
// lower case and has no full stop. The caller adds file or location with Status::in_file() and
// at().
namespace millrace {

/// Functions that create an error Status with an fmt message. Not for public headers, which must
/// not include fmt.
/// A field of a configuration, or an argument of a call, has a bad value.
template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
/// A program breaks a rule of the format or of an op.
template <typename... Args>
Status InvalidProgram(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidProgram, fmt::format(format, std::forward<Args>(args)...)};
}
/// Parameters, feeds, checkpoints or text cannot be read.
template <typename... Args>
Status InvalidData(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidData, fmt::format(format, std::forward<Args>(args)...)};
}
/// A file or a named thing does not exist.
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...)};
}
/// The operating system refused to read or write.
template <typename... Args>
Status IoError(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kIo, fmt::format(format, std::forward<Args>(args)...)};
}
/// A valid request that this build does not support; the message names the missing feature.
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...)};
}
/// A bug in millrace: a state that no input can cause.
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace millrace
