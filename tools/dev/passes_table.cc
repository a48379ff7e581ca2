// Writes docs/passes.md, every pass with its options, from the registry. With --check it compares
// the file instead.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "transpiler/register_all.h"

namespace passes_table {
namespace {

using namespace millrace::transpiler;

constexpr std::string_view kPassesTableHead = R"(# Passes

What `transpile-program --passes` knows. A pipeline is text, `a,b{x=1,y=[p,q],z="quoted"}`; a list of one may be
written as its element. The program is verified after each pass, and a pass that denies a change is caught.
`--print-after`, `--dump-dir` and `--timing` also show the pipelines of a distribution and of `--minimize`, which have
no `--passes`. Written by `passes_table > docs/passes.md`; a test checks that it is up to date.
)";

struct DefaultText {
  std::string operator()(bool value) const { return value ? "`true`" : "`false`"; }
  std::string operator()(int64_t value) const { return fmt::format("`{}`", value); }
  std::string operator()(double value) const { return fmt::format("`{}`", value); }
  std::string operator()(const std::string& value) const {
    return value.empty() ? "`\"\"`" : "`" + value + "`";
  }
  std::string operator()(const std::vector<std::string>& /*value*/) const { return "`[]`"; }
};

std::string describe(const OptionDef& option) {
  std::string doc = option.doc.str();
  for (const llvm::StringRef choice : option.choices)
    doc += (choice == option.choices.front() ? ": `" : ", `") + choice.str() + "`";
  return fmt::format(
      "| `{}` | {} | {} | {} |\n", option.name.str(), option_type_name(option.type).str(),
      option.fallback ? std::visit(DefaultText(), *option.fallback) : "required", doc);
}

std::string table() {
  PassRegistry passes;
  register_all(passes);
  std::string out(kPassesTableHead);
  for (const PassInfo* pass : passes.passes()) {
    out += fmt::format("\n## {}\n\n{}\n", pass->name().str(), pass->summary().str());
    if (pass->options().empty()) continue;
    out += "\n| option | type | default | |\n|---|---|---|---|\n";
    for (const OptionDef& option : pass->options()) out += describe(option);
  }
  return out;
}

int check(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (found == table()) return 0;
  fmt::print(stderr, "{} is out of date; regenerate it with: passes_table > {}\n", path, path);
  return 1;
}

}  // namespace
}  // namespace passes_table

int main(int argc, char** argv) {
  using namespace passes_table;
  CLI::App app("print the table of all passes");
  std::string path;
  app.add_option("--check", path, "compare with this file instead of printing");
  CLI11_PARSE(app, argc, argv);
  if (!path.empty()) return check(path);
  fmt::print("{}", table());
  return 0;
}
