#include "framework/text_form/lexer.h"

#include <algorithm>
#include <array>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::text_form {
namespace {

struct NamedForm {
  TensorForm form;
  std::string_view name;
};
constexpr std::array<NamedForm, 8> kForms = {{{TensorForm::kSelectedRows, "selected_rows"},
                                              {TensorForm::kLodTensor, "lod_tensor"},
                                              {TensorForm::kTensorArray, "tensor_array"},
                                              {TensorForm::kString, "string"},
                                              {TensorForm::kStrings, "strings"},
                                              {TensorForm::kVocab, "vocab"},
                                              {TensorForm::kSparseCoo, "sparse_coo"},
                                              {TensorForm::kSparseCsr, "sparse_csr"}}};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '@' || c == '/' || c == '+' || c == '-' || c == '$' || c == '~' ||
         c == '|';
}

bool starts_arrow(llvm::StringRef text) {
  return text.startswith("->");
}

}  // namespace

bool is_plain_name(llvm::StringRef name) {
  return !name.empty() && llvm::all_of(name, is_plain);
}

bool is_keyword(llvm::StringRef word) {
  return word == "var" || word == "param" || word == "persist" || word == "target" ||
         word == "unknown" || word == "wire";
}

TensorForm usual_form(VarKind kind) {
  switch (kind) {
    case VarKind::kSelectedRows:
      return TensorForm::kSelectedRows;
    case VarKind::kLodTensorArray:
      return TensorForm::kTensorArray;
    case VarKind::kString:
      return TensorForm::kString;
    case VarKind::kStrings:
      return TensorForm::kStrings;
    case VarKind::kVocab:
      return TensorForm::kVocab;
    case VarKind::kSparseCoo:
      return TensorForm::kSparseCoo;
    case VarKind::kSparseCsr:
      return TensorForm::kSparseCsr;
    default:
      return TensorForm::kLodTensor;
  }
}

std::string_view form_name(TensorForm form) {
  const auto* const it = llvm::find_if(kForms, [&](const NamedForm& f) { return f.form == form; });
  return it == kForms.end() ? "none" : it->name;
}

std::optional<TensorForm> parse_form(std::string_view name) {
  const auto* const it = llvm::find_if(kForms, [&](const NamedForm& f) { return f.name == name; });
  return it == kForms.end() ? std::nullopt : std::optional(it->form);
}

std::string Token::shown() const {
  constexpr size_t kLongest = 60;
  switch (kind) {
    case TokenKind::kNewline:
      return "the end of the line";
    case TokenKind::kEnd:
      return "the end of the text";
    default: {
      const llvm::StringRef head = text.take_front(kLongest);
      const std::string escaped = printable({head.data(), head.size()});
      return "'" + escaped + (text.size() > kLongest ? "...'" : "'");
    }
  }
}

std::string Lexer::place(const char* at) const {
  const llvm::StringRef before = text_.take_front(static_cast<size_t>(at - text_.data()));
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t break_at = before.rfind('\n');
  const size_t column = before.size() - (break_at == llvm::StringRef::npos ? 0 : break_at + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else {
      return;
    }
  }
}

StatusOr<Token> Lexer::string() {
  size_t end = position_ + 1;
  while (end < text_.size() && text_[end] != '"' && text_[end] != '\n')
    end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size() || text_[end] != '"') {
    return InvalidData("{}: expected a closing quote before the end of the line",
                       place(text_.data() + position_));
  }
  const llvm::StringRef text = text_.slice(position_, end + 1);
  position_ = end + 1;
  return Token{TokenKind::kString, text};
}

StatusOr<Token> Lexer::next() {
  skip_blanks();
  if (position_ >= text_.size()) return Token{TokenKind::kEnd, text_.take_back(0)};
  const llvm::StringRef rest = text_.drop_front(position_);
  const char c = rest.front();
  if (c == '"') return string();
  Token token{TokenKind::kMark, rest.take_front(1)};
  if (c == '\n') {
    token.kind = TokenKind::kNewline;
  } else if (starts_arrow(rest)) {
    token = Token{TokenKind::kArrow, rest.take_front(2)};
  } else if (is_plain(c)) {
    size_t length = 1;
    while (length < rest.size() && is_plain(rest[length]) && !starts_arrow(rest.drop_front(length)))
      ++length;
    token = Token{TokenKind::kWord, rest.take_front(length)};
  } else if (llvm::StringRef("{}()[]:,=^%!?").find(c) == llvm::StringRef::npos) {
    return InvalidData("{}: unexpected character '{}'", place(rest.data()),
                       printable({rest.data(), 1}))
        .with_hint("names with other characters than letters, digits and _.@/+-$~| need quotes");
  }
  position_ += token.text.size();
  return token;
}

std::optional<std::string> unquote(llvm::StringRef text) {
  std::string out;
  text = text.drop_front().drop_back();
  while (!text.empty()) {
    const char c = text.front();
    text = text.drop_front();
    if (c != '\\') {
      out += c;
      continue;
    }
    if (text.empty()) return std::nullopt;
    const char escape = text.front();
    text = text.drop_front();
    if (escape == 'n') {
      out += '\n';
    } else if (escape == 't') {
      out += '\t';
    } else if (escape == '"' || escape == '\\') {
      out += escape;
    } else if (escape == 'x') {
      const std::optional<std::string> byte = bytes_of_hex(text.take_front(2));
      if (!byte || byte->size() != 1) return std::nullopt;
      out += *byte;
      text = text.drop_front(2);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::string> bytes_of_hex(llvm::StringRef hex) {
  if (hex.size() % 2 != 0 || !llvm::all_of(hex, llvm::isHexDigit)) return std::nullopt;
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(llvm::hexDigitValue(hex[i]) * 16 + llvm::hexDigitValue(hex[i + 1]));
  return out;
}

}  // namespace millrace::text_form
