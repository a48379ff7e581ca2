#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/types.h"
#include "framework/var.h"

/// Words of the text form, shared by its printer and its parser.
namespace millrace::text_form {

/// True if the name may stand without quotes.
bool is_plain_name(llvm::StringRef name);
/// True for words with a meaning of their own inside a block; op types and slots of that name are
/// quoted.
bool is_keyword(llvm::StringRef word);

/// Tensor form that goes without saying for a kind.
TensorForm usual_form(VarKind kind);
std::string_view form_name(TensorForm form);
std::optional<TensorForm> parse_form(std::string_view name);

enum class TokenKind {
  kWord,     ///< run of plain characters: names, numbers, keywords
  kString,   ///< quoted; text includes the quotes
  kMark,     ///< one of { } ( ) [ ] : , = ^ % ! ?
  kArrow,    ///< ->
  kNewline,  ///< end of a line; comments belong to it
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  llvm::StringRef text;

  [[nodiscard]] bool is(char mark) const {
    return kind == TokenKind::kMark && text.front() == mark;
  }
  [[nodiscard]] bool is_word(llvm::StringRef word) const {
    return kind == TokenKind::kWord && text == word;
  }
  /// How an error message shows it.
  [[nodiscard]] std::string shown() const;
};

/// Splits text into tokens; the text must outlive it.
class Lexer {
 public:
  explicit Lexer(llvm::StringRef text) : text_(text) {}

  /// Errors: kInvalidData for a character that no token begins with and for a string without end.
  StatusOr<Token> next();
  /// "line 3, column 14" of a place in the text, in bytes from 1.
  [[nodiscard]] std::string place(const char* at) const;

 private:
  void skip_blanks();
  StatusOr<Token> string();

  llvm::StringRef text_;
  size_t position_ = 0;
};

/// Undoes in_quotes(); nullopt for an escape that does not exist.
std::optional<std::string> unquote(llvm::StringRef text);
/// Bytes of a run of hex digits; nullopt if it is none.
std::optional<std::string> bytes_of_hex(llvm::StringRef hex);

}  // namespace millrace::text_form
