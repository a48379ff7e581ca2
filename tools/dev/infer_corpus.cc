// Runs schema checks and shape inference over many program files and sums up what does not fit,
// per op type. For people who write op schemas: valid programs must give no line under "unknown",
// "schema" and "errors", and every line under "mismatches" needs an explanation.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/StringExtras.h>

#include "framework/import.h"
#include "framework/names.h"
#include "ops/grad.h"
#include "ops/infer_shapes.h"
#include "ops/registry.h"

namespace {

using namespace millrace;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> paths;
  std::set<std::string> only;
  size_t examples = 3;
  bool grads = false;

  [[nodiscard]] bool wants(llvm::StringRef type) const {
    return only.empty() || only.count(type.str()) > 0;
  }
};

// Counts and first examples of one kind of finding, by op type and text.
class Findings {
 public:
  explicit Findings(size_t examples) : examples_(examples) {}

  void add(const std::string& key, std::string example) {
    Entry& entry = entries_[key];
    ++entry.count;
    if (entry.examples.size() < examples_) entry.examples.push_back(std::move(example));
  }

  void print(const char* title) const {
    size_t total = 0;
    for (const auto& [key, entry] : entries_) total += entry.count;
    fmt::print("== {}: {} of {} kinds\n", title, total, entries_.size());
    for (const auto& [key, entry] : entries_) {
      fmt::print("{:6} {}\n", entry.count, key);
      for (const std::string& example : entry.examples) fmt::print("         {}\n", example);
    }
  }

 private:
  struct Entry {
    size_t count = 0;
    std::vector<std::string> examples;
  };
  size_t examples_;
  std::map<std::string, Entry> entries_;
};

struct Report {
  explicit Report(size_t examples)
      : unreadable(examples),
        unknown(examples),
        schema(examples),
        errors(examples),
        mismatches(examples),
        types(examples) {}
  Findings unreadable;
  Findings unknown;
  Findings schema;
  Findings errors;
  Findings mismatches;
  Findings types;
  size_t programs = 0;
  size_t ops = 0;
};

bool looks_like_program(const fs::path& path) {
  static const std::set<std::string> kNames = {"__model__", "main_program", "startup_program"};
  return path.extension() == ".pb" || kNames.count(path.filename().string()) > 0;
}

std::vector<std::string> program_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && looks_like_program(entry.path()))
        files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string place(const std::string& file, Location where) {
  where.file = file;
  return where.to_string();
}

// ---- schema

size_t present(const Op& op, const Slot& slot) {
  return static_cast<size_t>(llvm::count_if(
      slot.args, [&](const Arg& arg) { return op.name_of(arg.name) != names::kEmpty; }));
}

void check_slots(const Op& op, const ops::OpDef& def, bool outputs, const std::string& where,
                 Findings& out) {
  const char* const side = outputs ? "output" : "input";
  for (const Slot& slot : outputs ? op.outputs() : op.inputs()) {
    const llvm::StringRef name = op.name_of(slot.name);
    const ops::SlotDef* const known = outputs ? def.find_output(name) : def.find_input(name);
    if (known == nullptr) {
      if (!def.has_open_slots() && present(op, slot) > 0)
        out.add(fmt::format("{}: unknown {} {}", op.type().str(), side, name.str()), where);
      continue;
    }
    for (const Arg& arg : slot.args) {
      const Var* const var = op.block().find_var_recursive(op.name_of(arg.name));
      if (var != nullptr && (known->kinds & ops::mask_of(var->kind())) == 0) {
        out.add(fmt::format("{}: {} {} is of kind {}", op.type().str(), side, name.str(),
                            var_kind_name(var->kind())),
                where);
      }
    }
  }
  for (const ops::SlotDef& slot : outputs ? def.outputs() : def.inputs()) {
    const Slot* const own = outputs ? op.find_output(slot.name) : op.find_input(slot.name);
    const size_t count = own == nullptr ? 0 : present(op, *own);
    const bool missing =
        count == 0 && (slot.arity == ops::Arity::kOne || slot.arity == ops::Arity::kMany);
    const bool many =
        count > 1 && (slot.arity == ops::Arity::kOne || slot.arity == ops::Arity::kOptional);
    if ((missing && !slot.intermediate) || many) {
      out.add(fmt::format("{}: {} {} has {} vars", op.type().str(), side, slot.name.str(), count),
              where);
    }
  }
}

std::vector<double> numbers_of(const AttrValue& value) {
  if (const auto list = convert_attr(value, AttrKind::kLongs)) {
    const auto longs = attr_cast<std::vector<int64_t>>(*list);
    return {longs.begin(), longs.end()};
  }
  if (const auto list = convert_attr(value, AttrKind::kFloat64s))
    return attr_cast<std::vector<double>>(*list);
  if (const auto one = convert_attr(value, AttrKind::kFloat64)) return {attr_cast<double>(*one)};
  return {};
}

void check_attrs(const Op& op, const ops::OpDef& def, const std::string& where, Findings& out) {
  for (const ops::AttrDef& attr : def.attrs()) {
    const std::string name = op.type().str() + ": attribute " + attr.name.str();
    const AttrValue* const value = op.find_attr(attr.name);
    if (value == nullptr) {
      if (!attr.fallback) out.add(name + " is missing", where);
      continue;
    }
    if (!attr_kind_converts(value->kind(), attr.kind)) {
      out.add(fmt::format("{} is of kind {}, schema {}", name, attr_kind_name(value->kind()),
                          attr_kind_name(attr.kind)),
              where);
      continue;
    }
    if (attr.kind == AttrKind::kBlock || attr.kind == AttrKind::kBlocks) continue;
    for (const double number : numbers_of(*value)) {
      if (number < attr.min || number > attr.max)
        out.add(fmt::format("{} is {}, range [{}, {}]", name, number, attr.min, attr.max), where);
    }
    if (attr.kind == AttrKind::kString && !attr.choices.empty()) {
      const auto text = attr_cast<std::string>(*convert_attr(*value, AttrKind::kString));
      if (!llvm::is_contained(attr.choices, text))
        out.add(fmt::format("{} is '{}'", name, text), where);
    }
  }
}

// ---- gradients

std::string slots_text(const std::vector<std::pair<std::string, std::vector<std::string>>>& slots) {
  std::vector<std::string> parts;
  for (const auto& [slot, vars] : slots)
    parts.push_back(slot + "=" + fmt::format("{}", fmt::join(vars, ",")));
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ";"));
}

// One line a gradient op: place, forward type, gradient type, inputs, outputs; tab-separated.
void print_grads(const ops::OpRegistry& registry, const Op& op, const std::string& where) {
  const ops::GradContext context(op, [](llvm::StringRef) { return true; });
  const auto grads = ops::make_grad_ops(registry, context);
  if (!grads.ok()) {
    fmt::print("grad\t{}\t{}\t!{}\n", where, op.type().str(), grads.status().message());
    return;
  }
  if (grads.value().empty()) fmt::print("grad\t{}\t{}\t!nothing wanted\n", where, op.type().str());
  for (const ops::GradOp& grad : grads.value()) {
    fmt::print("grad\t{}\t{}\t{}\t{}\t{}\n", where, op.type().str(), grad.type,
               slots_text(grad.inputs), slots_text(grad.outputs));
  }
}

// ---- element types

// Infers over a copy of the program, whose declarations change, and compares dtype and LoD level.
void check_types(const ops::OpRegistry& registry, const Program& program, const Options& options,
                 const std::string& file, Findings& out) {
  const std::unique_ptr<Program> copy = program.clone();
  for (size_t b = 0; b < program.block_count(); ++b) {
    const Block& block = program.block(b);
    for (Op& op : copy->block(b).ops()) {
      const ops::OpDef* const def = registry.find(op.type());
      if (def == nullptr || def->infer_fn() == nullptr) continue;
      if (!ops::infer_op(registry, op).ok()) continue;  // listed under errors
      if (!options.wants(op.type())) continue;
      for (const llvm::StringRef name : op.output_names()) {
        const Var* const before = block.find_var_recursive(name);
        const Var* const after = copy->block(b).find_var_recursive(name);
        if (before == nullptr || after == nullptr || !before->spec().has_tensor()) continue;
        const std::string where =
            fmt::format("{}, var '{}'", place(file, op.location()), name.str());
        if (before->dtype() != after->dtype()) {
          out.add(fmt::format("{}: {} inferred as {}", op.type().str(), dtype_name(before->dtype()),
                              dtype_name(after->dtype())),
                  where);
        }
        if (before->kind() != after->kind()) {
          out.add(fmt::format("{}: {} inferred as {}", op.type().str(),
                              var_kind_name(before->kind()), var_kind_name(after->kind())),
                  where);
        }
        if (before->lod_level() != after->lod_level()) {
          out.add(fmt::format("{}: LoD level {} inferred as {}", op.type().str(),
                              before->lod_level(), after->lod_level()),
                  where);
        }
      }
    }
  }
}

// ---- one program

void check_file(const ops::OpRegistry& registry, const Options& options, const std::string& file,
                Report& report) {
  std::ifstream in(file, std::ios::binary);
  auto bytes = std::make_shared<std::string>(std::istreambuf_iterator<char>(in),
                                             std::istreambuf_iterator<char>());
  const auto program = import_program(bytes, file);
  if (!program.ok()) {
    report.unreadable.add(program.status().message(), file);
    return;
  }
  ++report.programs;
  for (const Block& block : program.value()->blocks()) {
    for (const Op& op : block.ops()) {
      const std::string type = op.type().str();
      if (!options.wants(type)) continue;
      ++report.ops;
      const std::string where = place(file, op.location());
      const ops::OpDef* const def = registry.find(type);
      if (def == nullptr) {
        report.unknown.add(type, where);
        continue;
      }
      check_slots(op, *def, false, where, report.schema);
      check_slots(op, *def, true, where, report.schema);
      check_attrs(op, *def, where, report.schema);
      if (options.grads) print_grads(registry, op, where);
    }
  }
  std::vector<Status> errors;
  const auto mismatches = ops::check_shapes(registry, *program.value(), errors);
  for (const Status& error : errors) {
    if (options.wants(error.location().op_type))
      report.errors.add(error.location().op_type,
                        place(file, error.location()) + ": " + error.message());
  }
  check_types(registry, *program.value(), options, file, report.types);
  for (const ops::ShapeMismatch& m : mismatches) {
    if (options.wants(m.place.op_type))
      report.mismatches.add(m.place.op_type,
                            fmt::format("{}: declared {}, inferred {}", place(file, m.place),
                                        ops::dims_text(m.declared), ops::dims_text(m.inferred)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("check op schemas and shape inference against program files");
  Options options;
  std::vector<std::string> only;
  app.add_option("paths", options.paths,
                 "program files, or folders to search for *.pb, __model__, main_program and "
                 "startup_program")
      ->required()
      ->check(CLI::ExistingPath);
  app.add_option("--only", only, "op types to look at; default: all")->delimiter(',');
  app.add_option("--examples", options.examples, "places shown of each finding")
      ->capture_default_str();
  app.add_flag("--grads", options.grads, "also print the gradient ops of every op");
  CLI11_PARSE(app, argc, argv);
  options.only = {only.begin(), only.end()};

  const auto registry = ops::standard_registry();
  Report report(options.examples);
  for (const std::string& file : program_files(options.paths))
    check_file(*registry, options, file, report);
  fmt::print("{} programs, {} ops\n", report.programs, report.ops);
  report.unreadable.print("not readable as programs");
  report.unknown.print("unknown op types");
  report.schema.print("schema");
  report.errors.print("errors");
  report.mismatches.print("mismatches");
  report.types.print("element types and LoD levels");
  return 0;
}
