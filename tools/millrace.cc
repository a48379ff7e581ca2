// millrace: all tools in one program. `millrace run-program ...` is the same as run-program; the
// installed tools are links of their names to this program. transpile-program uses a different
// allocator, and migrate a library that no other tool needs: they stay separate programs, which
// this one starts.

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/version.h"
#include "tools/common/exit_code.h"
#include "tools/common/guarded_main.h"
#include "tools/verbs.h"

namespace {

using namespace millrace;  // NOLINT(google-build-using-namespace): this file is a main

// Runs a separate program, which is in the same folder.
int start_program(std::string name, char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  argv[0] = name.data();
  if (!error) execv(path.c_str(), argv);
  const Status status =
      NotFound("cannot start {}: {}", path, error ? error.message() : std::strerror(errno));
  fmt::print(stderr, "{}\n", status.to_string());
  return exit_code(status.code());
}

int start_transpile_program(int /*argc*/, char** argv) {
  return start_program("transpile-program", argv);
}

int start_migrate(int /*argc*/, char** argv) {
  return start_program("migrate", argv);
}

struct Verb {
  std::string_view name;
  std::string_view purpose;
  int (*run)(int, char**);
};

constexpr std::array<Verb, 11> kVerbs = {{
    {"checkpoint", tools::kCheckpointPurpose, tools::checkpoint},
    {"diff-program", tools::kDiffProgramPurpose, tools::diff_program},
    {"inspect-program", tools::kInspectProgramPurpose, tools::inspect_program},
    {"job-report", tools::kJobReportPurpose, tools::job_report},
    {"launch", tools::kLaunchPurpose, tools::launch},
    {"migrate", tools::kMigratePurpose, start_migrate},
    {"pserver", tools::kPserverPurpose, tools::pserver},
    {"quantize-program", tools::kQuantizeProgramPurpose, tools::quantize_program},
    {"run-program", tools::kRunProgramPurpose, tools::run_program},
    {"status", tools::kStatusPurpose, tools::status},
    {"transpile-program", tools::kTranspileProgramPurpose, start_transpile_program},
}};

const Verb* find_verb(std::string_view name) {
  for (const Verb& verb : kVerbs)
    if (verb.name == name) return &verb;
  return nullptr;
}

std::string help() {
  std::string out =
      "millrace - all tools in one program\n\nusage: millrace VERB [OPTIONS]\n\nVerbs:\n";
  for (const Verb& verb : kVerbs) out += fmt::format("  {:<20}{}\n", verb.name, verb.purpose);
  return out +
         "\nSee millrace VERB --help for the options of a verb and millrace --version for the "
         "version.\n";
}

int usage_error(std::string_view typed) {
  std::array<std::string_view, kVerbs.size()> names;
  for (size_t i = 0; i < kVerbs.size(); ++i) names[i] = kVerbs[i].name;
  const std::string nearest = typed.empty() ? std::string() : nearest_name(typed, names);
  Status status(StatusCode::kUsage,
                typed.empty() ? "expected a verb" : fmt::format("unknown verb '{}'", typed));
  fmt::print(stderr, "{}\n",
             std::move(status)
                 .with_hint(nearest.empty() ? "see millrace --help"
                                            : fmt::format("did you mean '{}'?", nearest))
                 .to_string());
  return exit_code(StatusCode::kUsage);
}

int run_verb(int argc, char** argv) {
  const std::string called = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  if (const Verb* const verb = find_verb(called)) return verb->run(argc, argv);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (const Verb* const verb = find_verb(first)) return verb->run(argc - 1, argv + 1);
  if (first == "--help" || first == "-h") {
    fmt::print("{}", help());
    return tools::kDone;
  }
  if (first == "--version") {
    const VersionInfo facts = version_info();
    fmt::print("millrace {} (commit {}, {}, {})\n", facts.version, facts.commit, facts.build_type,
               facts.compiler);
    return tools::kDone;
  }
  return usage_error(first);
}

}  // namespace

int main(int argc, char** argv) {
  return tools::guarded_main(run_verb, argc, argv);
}
