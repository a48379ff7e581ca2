// Writes docs/ops.md, the table of all ops, from the schemas. With --check it compares instead.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/text_form/value.h"
#include "ops/registry.h"

namespace {

using namespace millrace;

constexpr std::string_view kHead =
    R"(# Ops

Every op type this build knows, from the schemas in `ops/`. Written by `ops_table > docs/ops.md`; a test checks
that it is up to date.

Slots: `?` none or one var, `+` one or more, `*` none or more, `~` may be absent, read by the gradient only. Attributes
with their defaults; `!` has no default. Gradient ops are not listed, they have the slots of the forward op;
`rule` is a gradient made of other ops, or one whose slots depend on the attributes. The attributes
that every op may carry (`op_role`, `op_device`, ...) are left out.

| op | what it does | inputs | outputs | attributes | gradient |
|---|---|---|---|---|---|
)";

// A cell must not end the table.
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

std::string table() {
  const auto registry = ops::standard_registry();
  std::string out(kHead);
  for (const llvm::StringRef type : registry->types()) {
    const ops::OpDef& def = *registry->find(type);
    if (def.forward() != nullptr || type.endswith("_grad")) continue;
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", type.str(), cell(description(def)),
                       slots(def.inputs()), slots(def.outputs()), cell(attributes(def)),
                       gradient(def));
  }
  return out;
}

int check(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (found == table()) return 0;
  fmt::print(stderr, "{} is out of date; write it anew with: ops_table > {}\n", path, path);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("print the table of all ops");
  std::string path;
  app.add_option("--check", path, "compare with this file instead of printing");
  CLI11_PARSE(app, argc, argv);
  if (!path.empty()) return check(path);
  fmt::print("{}", table());
  return 0;
}
