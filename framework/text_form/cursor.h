#pragma once

#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/base/status.h"
#include "framework/text_form/lexer.h"

namespace millrace::text_form {

/// Parser state: the current token, and the elements that all parts of the grammar share.
/// \param text  must outlive the cursor; call advance() once before the first token is read
class Cursor {
 public:
  explicit Cursor(llvm::StringRef text) : lexer_(text) {}

  [[nodiscard]] const Token& token() const { return token_; }
  /// Moves to the next token. Errors: those of the lexer.
  Status advance();
  /// Skips ends of lines.
  Status skip_newlines();

  /// kInvalidData: "line L, column C: expected <what>, found <token>".
  [[nodiscard]] Status expected(const std::string& what) const;
  /// kInvalidData at the current token with the given message.
  [[nodiscard]] Status wrong(const std::string& message) const;

  /// Consumes the mark. Errors: kInvalidData if the token is something else.
  Status take(char mark, const std::string& what);
  /// Consumes the token if it is the mark; returns whether it was.
  StatusOr<bool> take_if(char mark);
  /// Consumes a plain or quoted name.
  StatusOr<std::string> name(const std::string& what);
  /// Consumes an integer of 32 or 64 bits.
  StatusOr<int32_t> int32(const std::string& what);
  StatusOr<int64_t> int64(const std::string& what);
  /// Consumes "=" and a quoted string of hex digits.
  StatusOr<std::string> hex_bytes(const std::string& what);

 private:
  Lexer lexer_;
  Token token_;
};

/// Parses an attribute value. Sets `missing` for the form "int?", which means that there is no
/// value.
StatusOr<AttrValue> parse_value(Cursor& cursor, bool& missing);

}  // namespace millrace::text_form
