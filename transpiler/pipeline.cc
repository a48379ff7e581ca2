#include "transpiler/pipeline.h"

#include <algorithm>
#include <optional>

#include <llvm/ADT/StringExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::transpiler {
namespace {

bool is_name_char(char c) {
  return llvm::isAlnum(c) || c == '-' || c == '_' || c == '.';
}

bool is_word_char(char c) {
  return c > ' ' && c < '\x7f' && llvm::StringRef(",{}[]=\"\\").find(c) == llvm::StringRef::npos;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class Parser {
 public:
  explicit Parser(llvm::StringRef text) : text_(text) {}

  StatusOr<Pipeline> parse() {
    Pipeline pipeline;
    skip_blanks();
    if (at_end()) return pipeline;
    do {
      if (pipeline.steps.size() == kMaxPipelineSteps) {
        return Status(StatusCode::kResource,
                      fmt::format("pipeline has more than {} passes", kMaxPipelineSteps));
      }
      MILLRACE_ASSIGN_OR_RETURN(PipelineStep step, parse_step());
      pipeline.steps.push_back(std::move(step));
    } while (accept(','));
    if (!at_end()) return expected(pipeline.steps.back().options.empty() ? "',' or '{'" : "','");
    return pipeline;
  }

 private:
  StatusOr<PipelineStep> parse_step() {
    PipelineStep step;
    MILLRACE_ASSIGN_OR_RETURN(step.pass, parse_name("the name of a pass"));
    if (!accept('{') || accept('}')) return step;
    do {
      const size_t column = column_;
      MILLRACE_ASSIGN_OR_RETURN(PipelineOption option, parse_option());
      for (const PipelineOption& other : step.options) {
        if (other.name != option.name) continue;
        return InvalidArgument("pipeline, column {}: option '{}' of pass '{}' is given twice",
                               column + 1, option.name, step.pass);
      }
      step.options.push_back(std::move(option));
    } while (accept(','));
    if (!accept('}')) return expected("',' or '}'");
    return step;
  }

  StatusOr<PipelineOption> parse_option() {
    PipelineOption option;
    MILLRACE_ASSIGN_OR_RETURN(option.name, parse_name("the name of an option"));
    if (!accept('=')) return expected("'='");
    if (!accept('[')) {
      MILLRACE_ASSIGN_OR_RETURN(option.value, parse_value("a value, a quoted string or '['"));
      return option;
    }
    std::vector<std::string> list;
    if (!accept(']')) {
      do {
        MILLRACE_ASSIGN_OR_RETURN(std::string value, parse_value("a value or a quoted string"));
        list.push_back(std::move(value));
      } while (accept(','));
      if (!accept(']')) return expected("',' or ']'");
    }
    option.value = std::move(list);
    return option;
  }

  StatusOr<std::string> parse_name(const char* what) {
    const llvm::StringRef name = rest().take_while(is_name_char);
    if (name.empty()) return expected(what);
    advance(name.size());
    return name.str();
  }

  StatusOr<std::string> parse_value(const char* what) {
    if (!at_end() && text_[column_] == '"') return parse_quoted();
    const llvm::StringRef word = rest().take_while(is_word_char);
    if (word.empty()) return expected(what);
    advance(word.size());
    return word.str();
  }

  StatusOr<std::string> parse_quoted() {
    const size_t start = column_;
    std::string out;
    for (++column_; !at_end() && text_[column_] != '"';) {
      if (text_[column_] != '\\') {
        out += text_[column_++];
        continue;
      }
      const std::optional<char> c = parse_escape();
      if (!c) return expected("one of the escapes \\\" \\\\ \\n \\t \\xHH");
      out += *c;
    }
    if (at_end()) {
      return InvalidArgument(
          "pipeline, column {}: expected '\"' that ends the string, found the end", start + 1);
    }
    advance(1);
    return out;
  }

  // Reads the escape that starts here; nullopt leaves the position at its backslash.
  std::optional<char> parse_escape() {
    const llvm::StringRef escape = rest();
    if (escape.size() >= 4 && escape[1] == 'x' && llvm::isHexDigit(escape[2]) &&
        llvm::isHexDigit(escape[3])) {
      column_ += 4;
      return static_cast<char>(llvm::hexFromNibbles(escape[2], escape[3]));
    }
    const size_t which =
        escape.size() < 2 ? llvm::StringRef::npos : llvm::StringRef("\"\\nt").find(escape[1]);
    if (which == llvm::StringRef::npos) return std::nullopt;
    column_ += 2;
    return "\"\\\n\t"[which];
  }

  Status expected(const char* what) const {
    const std::string found =
        at_end() ? "the end" : "'" + printable(rest().take_front(1).str()) + "'";
    return InvalidArgument("pipeline, column {}: expected {}, found {}", column_ + 1, what, found);
  }

  bool accept(char c) {
    if (at_end() || text_[column_] != c) return false;
    advance(1);
    return true;
  }
  void advance(size_t bytes) {
    column_ += bytes;
    skip_blanks();
  }
  void skip_blanks() {
    while (!at_end() && is_blank(text_[column_])) ++column_;
  }
  [[nodiscard]] bool at_end() const { return column_ == text_.size(); }
  [[nodiscard]] llvm::StringRef rest() const { return text_.drop_front(column_); }

  llvm::StringRef text_;
  size_t column_ = 0;
};

std::string value_text(const std::string& value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), is_word_char) ? value
                                                                                 : in_quotes(value);
}

std::string value_text(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& value : list)
    out += (&value == list.data() ? "" : ",") + value_text(value);
  return out + "]";
}

}  // namespace

std::string PipelineStep::to_string() const {
  std::string out = pass;
  if (options.empty()) return out;
  out += '{';
  for (const PipelineOption& option : options) {
    if (&option != options.data()) out += ',';
    out += option.name + "=";
    out += std::visit([](const auto& value) { return value_text(value); }, option.value);
  }
  return out + "}";
}

std::string Pipeline::to_string() const {
  std::string out;
  for (const PipelineStep& step : steps) out += (out.empty() ? "" : ",") + step.to_string();
  return out;
}

StatusOr<Pipeline> parse_pipeline(llvm::StringRef text) {
  if (text.size() > kMaxPipelineBytes) {
    return Status(StatusCode::kResource,
                  fmt::format("pipeline text has {} bytes, at most {} are accepted", text.size(),
                              kMaxPipelineBytes));
  }
  return Parser(text).parse();
}

}  // namespace millrace::transpiler
