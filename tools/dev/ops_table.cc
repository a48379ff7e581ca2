// Writes docs/ops.md, the table of all ops, from the schemas, the kernels and their tests. With
// --check it compares the file instead. Reads tests/ in the current directory, which must be a
// source tree.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "executor/standard_runtime.h"
#include "framework/text_form/value.h"

namespace ops_table {
namespace {

using namespace millrace;

constexpr std::string_view kOpsTableHead =
    R"(# Ops

Every op type this build knows, from the schemas in `ops/`. Written by `ops_table > docs/ops.md` in the source folder;
a test checks that it is up to date.

Slots: `?` none or one var, `+` one or more, `*` none or more, `~` may be absent, read by the gradient only. Attributes
with their defaults; `!` has no default. Gradient ops are not listed, they have the slots of the forward op;
`rule` is a gradient made of other ops, or one whose slots depend on the attributes. The attributes
that every op may carry (`op_role`, `op_device`, ...) are left out.

"runs": on `CPU` by a kernel, or by the `executor` itself; `forward` where the gradient op has no kernel. Ops that do not run
raise `unimplemented` with their place. "tested": cases of the reference corpus and the element types that they have, counted in
`tests/conformance/reference_cases.json`; for ops without any: whether `tests/kernels` or `tests/executor` have tests.

| op | what it does | inputs | outputs | attributes | gradient | runs | tested |
|---|---|---|---|---|---|---|---|
)";

// Escapes text for a cell, so that it cannot end the cell or the table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string_view mark(const ops::SlotDef& slot) {
  if (slot.intermediate) return "~";
  switch (slot.arity) {
    case ops::Arity::kOne:
      return "";
    case ops::Arity::kOptional:
      return "?";
    case ops::Arity::kMany:
      return "+";
    case ops::Arity::kAny:
      return "*";
  }
  return "";
}

std::string slots(llvm::ArrayRef<ops::SlotDef> defs) {
  std::vector<std::string> out;
  for (const ops::SlotDef& slot : defs)
    out.push_back(fmt::format("{}{}", slot.name.str(), mark(slot)));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string attributes(const ops::OpDef& def) {
  std::vector<std::string> out;
  for (const ops::AttrDef& attr : def.attrs()) {
    out.push_back(attr.fallback
                      ? fmt::format("{} = {}", attr.name.str(), print_value(*attr.fallback))
                      : fmt::format("{}! {}", attr.name.str(), attr_kind_name(attr.kind)));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string gradient(const ops::OpDef& def) {
  if (def.grad_spec()) return def.grad_spec()->type.str();
  return def.has_grad() ? "rule" : "";
}

std::string description(const ops::OpDef& def) {
  if (def.unsupported_reason().empty()) return def.doc().str();
  return fmt::format("{}; not run: {}", def.doc().str(), def.unsupported_reason().str());
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The test material of the source tree.
struct Evidence {
  nlohmann::json references = nlohmann::json::object();
  std::string unit_tests;
};

Evidence evidence() {
  Evidence found;
  const std::string cases = content_of("tests/conformance/reference_cases.json");
  if (!cases.empty()) found.references = nlohmann::json::parse(cases);
  for (const char* const folder : {"tests/kernels", "tests/executor"}) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".cc") found.unit_tests += content_of(entry.path());
  }
  return found;
}

std::string runs(const executor::Runtime& runtime, const ops::OpDef& def) {
  if (runtime.controls.find(def.type()) != nullptr) return "executor";
  if (runtime.kernels->find(def.type()) == nullptr) return "";
  if (!def.grad_spec()) return "CPU";
  const llvm::StringRef gradient = def.grad_spec()->type;
  const bool complete =
      runtime.kernels->find(gradient) != nullptr || runtime.controls.find(gradient) != nullptr;
  return complete ? "CPU" : "CPU, forward";
}

std::string tested(const Evidence& evidence, const std::string& type) {
  if (const auto found = evidence.references.find(type); found != evidence.references.end()) {
    const auto dtypes = found->at("dtypes").get<std::vector<std::string>>();
    return fmt::format("{}: {}", found->at("cases").get<int>(), fmt::join(dtypes, " "));
  }
  return evidence.unit_tests.find('"' + type + '"') == std::string::npos ? "" : "unit tests";
}

std::string table() {
  const auto runtime = executor::standard_runtime();
  const Evidence known = evidence();
  std::string out(kOpsTableHead);
  for (const llvm::StringRef type : runtime->ops->types()) {
    const ops::OpDef& def = *runtime->ops->find(type);
    if (def.forward() != nullptr || type.endswith("_grad")) continue;
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n", type.str(),
                       cell(description(def)), slots(def.inputs()), slots(def.outputs()),
                       cell(attributes(def)), gradient(def), runs(*runtime, def),
                       tested(known, type.str()));
  }
  return out;
}

int check(const std::string& path) {
  if (content_of(path) == table()) return 0;
  fmt::print(stderr, "{} is out of date; regenerate it with: ops_table > {}\n", path, path);
  return 1;
}

}  // namespace
}  // namespace ops_table

int main(int argc, char** argv) {
  using namespace ops_table;
  CLI::App app("print the table of all ops");
  std::string path;
  app.add_option("--check", path, "compare with this file instead of printing");
  CLI11_PARSE(app, argc, argv);
  if (!path.empty()) return check(path);
  fmt::print("{}", table());
  return 0;
}
