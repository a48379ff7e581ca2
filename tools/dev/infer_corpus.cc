// Runs the verifier and shape inference over many program files and summarizes the findings per op
// type. For developers of op schemas: valid programs must produce no line under "unknown",
// "verifier" and "errors", and every line under "mismatches" needs an explanation.

#include <algorithm>
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
#include "ops/verify.h"

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

// Counts and first examples of one kind of finding, per op type and text.
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
        rules(examples),
        errors(examples),
        mismatches(examples),
        types(examples) {}
  Findings unreadable;
  Findings unknown;
  Findings rules;
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

// ---- rules of programs and schemas

// Reports errors of the verifier except unknown op types and failed inference, which are reported
// separately.
void check_rules(const ops::OpRegistry& registry, const Program& program, const Options& options,
                 const std::string& file, Findings& out) {
  ops::VerifyOptions rules;
  rules.check_shapes = false;
  for (const Finding& finding : ops::verify_program(registry, program, rules)) {
    const Location& where = finding.status.location();
    if (finding.severity != Severity::kError || finding.rule == "op-type") continue;
    if (!options.wants(where.op_type)) continue;
    out.add(fmt::format("{}: {}", finding.rule, where.op_type),
            place(file, where) + ": " + finding.status.message());
  }
}

// ---- gradients

std::string slots_text(const std::vector<std::pair<std::string, std::vector<std::string>>>& slots) {
  std::vector<std::string> parts;
  parts.reserve(slots.size());
  for (const auto& [slot, vars] : slots)
    parts.push_back(slot + "=" + fmt::format("{}", fmt::join(vars, ",")));
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ";"));
}

// One line per gradient op: location, forward type, gradient type, inputs, outputs; tab-separated.
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

// Runs inference on a copy of the program, changes its declarations, and compares dtypes and LoD
// levels.
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
      if (options.grads) print_grads(registry, op, where);
    }
  }
  check_rules(registry, *program.value(), options, file, report.rules);
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
  app.add_option("--only", only, "op types to check; default: all")->delimiter(',');
  app.add_option("--examples", options.examples, "locations shown per finding")
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
  report.rules.print("verifier");
  report.errors.print("errors");
  report.mismatches.print("mismatches");
  report.types.print("element types and LoD levels");
  return 0;
}
