#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/types.h"
#include "framework/var.h"

/// Tokens of the text form, shared by its printer and its parser.
namespace millrace::text_form {

/// True if the name can be written without quotes.
bool is_plain_name(llvm::StringRef name);
/// True for words that have a meaning inside a block. Op types and slots with such a name are
/// quoted.
bool is_keyword(llvm::StringRef word);

/// The tensor form that a kind has unless stated otherwise.
TensorForm usual_form(VarKind kind);
/// Name of a tensor form in the text form, and its inverse; nullopt for an unknown name.
std::string_view form_name(TensorForm form);
std::optional<TensorForm> parse_form(std::string_view name);

enum class TokenKind {
  kWord,     ///< plain characters: names, numbers, keywords
  kString,   ///< quoted; text includes the quotes
  kMark,     ///< one of { } ( ) [ ] : , = ^ % ! ?
  kArrow,    ///< ->
  kNewline,  ///< end of a line, with the comment before it
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  llvm::StringRef text;  ///< refers to the text of the lexer

  [[nodiscard]] bool is(char mark) const {
    return kind == TokenKind::kMark && text.front() == mark;
  }
  [[nodiscard]] bool is_word(llvm::StringRef word) const {
    return kind == TokenKind::kWord && text == word;
  }
  /// The token as shown in error messages.
  [[nodiscard]] std::string shown() const;
};

/// Splits text into tokens; the text must outlive it.
class Lexer {
 public:
  explicit Lexer(llvm::StringRef text) : text_(text) {}

  /// Errors: kInvalidData for a character that cannot start a token and for an unterminated string.
  StatusOr<Token> next();
  /// "line 3, column 14" of a position in the text; the column counts bytes from 1.
  [[nodiscard]] std::string place(const char* at) const;

 private:
  /// Skips blanks and, at the end of a line, comments.
  void skip_blanks();
  StatusOr<Token> string();

  llvm::StringRef text_;
  size_t position_ = 0;
};

/// Inverse of in_quotes(); nullopt for an unknown escape.
std::optional<std::string> unquote(llvm::StringRef text);
/// Bytes of a string of hex digits; nullopt if it is not one.
std::optional<std::string> bytes_of_hex(llvm::StringRef hex);

}  // namespace millrace::text_form
