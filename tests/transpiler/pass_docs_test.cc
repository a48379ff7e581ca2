// docs/passes.md is made from the registry. After a change of a pass:
//   MILLRACE_UPDATE_DOCS=1 build/dev/tests/transpiler_test --gtest_filter='PassDocs.*'

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace {

constexpr const char* kPage = "docs/passes.md";
constexpr const char* kHead = R"(# Passes

What `transpile-program --passes` knows. A pipeline is text, `a,b{x=1,y=[p,q],z="quoted"}`; a list of
one may be written as its element. After each pass the program is verified, and a pass that denies a
change is caught. Made from the registry by `tests/transpiler/pass_docs_test.cc`.
)";

std::string default_text(const OptionDef& option) {
  if (!option.fallback) return "required";
  if (option.type == OptionType::kStrings) return "`[]`";
  std::string value;
  switch (option.type) {
    case OptionType::kBool:
      value = std::get<bool>(*option.fallback) ? "true" : "false";
      break;
    case OptionType::kInt:
      value = std::to_string(std::get<int64_t>(*option.fallback));
      break;
    case OptionType::kFloat:
      value = std::to_string(std::get<double>(*option.fallback));
      break;
    default:
      value = std::get<std::string>(*option.fallback);
  }
  return value.empty() ? "`\"\"`" : "`" + value + "`";
}

std::string page() {
  PassRegistry passes;
  register_all_passes(passes);
  std::string out = kHead;
  for (const PassInfo* pass : passes.passes()) {
    out += "\n## " + pass->name().str() + "\n\n" + pass->summary().str() + "\n";
    if (pass->options().empty()) continue;
    out += "\n| option | type | default | |\n|---|---|---|---|\n";
    for (const OptionDef& option : pass->options()) {
      out += "| `" + option.name.str() + "` | " + option_type_name(option.type).str() + " | " +
             default_text(option) + " | " + option.doc.str() + " |\n";
    }
  }
  return out;
}

TEST(PassDocs, ThePageIsUpToDate) {
  if (std::getenv("MILLRACE_UPDATE_DOCS") != nullptr)
    std::ofstream(kPage, std::ios::binary | std::ios::trunc) << page();
  std::ifstream in(kPage, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_EQ(found, page()) << "run with MILLRACE_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace millrace::transpiler
