#include "framework/text_form/cursor.h"

#include "framework/base/errors.h"

namespace millrace::text_form {

Status Cursor::advance() {
  MILLRACE_ASSIGN_OR_RETURN(token_, lexer_.next());
  return Ok();
}

Status Cursor::skip_newlines() {
  while (token_.kind == TokenKind::kNewline) MILLRACE_RETURN_IF_ERROR(advance());
  return Ok();
}

Status Cursor::wrong(const std::string& message) const {
  return InvalidData("{}: {}", lexer_.place(token_.text.data()), message);
}

Status Cursor::expected(const std::string& what) const {
  return wrong(fmt::format("expected {}, found {}", what, token_.shown()));
}

Status Cursor::take(char mark, const std::string& what) {
  if (!token_.is(mark)) return expected(what);
  return advance();
}

StatusOr<bool> Cursor::take_if(char mark) {
  if (!token_.is(mark)) return false;
  MILLRACE_RETURN_IF_ERROR(advance());
  return true;
}

StatusOr<std::string> Cursor::name(const std::string& what) {
  std::string name;
  if (token_.kind == TokenKind::kWord) {
    name = token_.text.str();
  } else if (token_.kind == TokenKind::kString) {
    std::optional<std::string> text = unquote(token_.text);
    if (!text) return wrong("expected one of the escapes \\\" \\\\ \\n \\t \\xHH in the string");
    name = std::move(*text);
  } else {
    return expected(what);
  }
  MILLRACE_RETURN_IF_ERROR(advance());
  return name;
}

StatusOr<int64_t> Cursor::int64(const std::string& what) {
  int64_t value = 0;
  if (token_.kind != TokenKind::kWord || token_.text.getAsInteger(10, value)) return expected(what);
  MILLRACE_RETURN_IF_ERROR(advance());
  return value;
}

StatusOr<int32_t> Cursor::int32(const std::string& what) {
  int32_t value = 0;
  if (token_.kind != TokenKind::kWord || token_.text.getAsInteger(10, value)) return expected(what);
  MILLRACE_RETURN_IF_ERROR(advance());
  return value;
}

StatusOr<std::string> Cursor::hex_bytes(const std::string& what) {
  MILLRACE_RETURN_IF_ERROR(take('=', "'=' and the bytes in hex"));
  if (token_.kind != TokenKind::kString) return expected(what + " in quotes");
  std::optional<std::string> bytes = bytes_of_hex(token_.text.drop_front().drop_back());
  if (!bytes) return expected(what + " as an even number of hex digits");
  MILLRACE_RETURN_IF_ERROR(advance());
  return std::move(*bytes);
}

}  // namespace millrace::text_form
