#include "fleet/job/desc_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "framework/base/errors.h"

namespace millrace::fleet {
namespace {

// Keeps the first error instead of printing it.
class FirstFault final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Status parse_description(const std::string& text, const std::string& what,
                         google::protobuf::Message& out) {
  FirstFault fault;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&fault);
  if (parser.ParseFromString(text, &out)) return Ok();
  return InvalidArgument("{}: {}", what, fault.text());
}

}  // namespace millrace::fleet
