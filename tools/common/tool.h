#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "tools/common/exit_code.h"
#include "tools/common/log.h"

/// What all command-line tools share. Example of a tool:
///
///   int millrace::tools::diff_program(int argc, char** argv) {  // see tools/verbs.h
///     Tool tool({.name = "diff-program", .purpose = "compare two programs", ...});
///     Options options;  // a struct of the tool
///     tool.app().add_option("A", options.a, "first program")->required();
///     tool.app().add_flag("--strict", options.strict, "...")->group("Comparison");
///     tool.rare(tool.app().add_option("--limit", options.limit, "..."));  // --help-all only
///     return tool.run(argc, argv, [&] { return compare(tool, options); });  // StatusOr<int>
///   }
///
/// The body returns an exit code (kDone, kAnswerIsNo) or a Status, which run() prints and maps to
/// its exit code. Results are written with tool.write_output(), messages for users with tool.log().
/// Groups, defaults, --config keys and suggestions are derived from the options that were added.
namespace millrace::tools {

/// What --help shows besides the options.
struct ToolInfo {
  std::string name;
  std::string purpose;                ///< one line
  std::vector<std::string> examples;  ///< command lines
  /// Rows of the exit-code table; the codes 2, 3, 6, 7 and 70 are added automatically.
  std::vector<std::pair<int, std::string>> exit_codes;
  std::vector<std::string> notes;  ///< paragraphs below the options; may be empty
  /// Common flags that this tool accepts but ignores; giving one logs a warning.
  std::vector<std::string> unread = {};
};

/// The flags that every tool has.
struct CommonOptions {
  bool json = false;                ///< --json: one JSON document on stdout
  bool quiet = false;               ///< -q: errors only
  int verbose = 0;                  ///< number of -v
  std::string output;               ///< -o; empty if it was not given, "-" is stdout
  bool force = false;               ///< --force: replace existing outputs
  int threads = 0;                  ///< --threads; after parsing never 0: the default is all cores
  uint64_t seed = 0;                ///< --seed
  int64_t max_model_bytes;          ///< --max-model-bytes: larger program files are refused
  int64_t max_tensor_bytes = 0;     ///< --max-tensor-bytes; 0 is a share of the memory
  double timeout = 0;               ///< --timeout: seconds until the tool gives up; 0: never
  std::string log_format = "text";  ///< --log-format: text or json
};

/// One command-line tool: its options, its help, its errors and its streams. Not thread-safe.
class Tool {
 public:
  explicit Tool(ToolInfo info);
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  /// For adding options; put each into a group with ->group("Name").
  CLI::App& app() { return app_; }
  [[nodiscard]] const CommonOptions& common() const { return common_; }
  /// Shows an option in --help-all only.
  CLI::Option* rare(CLI::Option* option);

  /// Parses the command line and --config, runs the body, prints its error. Never throws.
  /// \returns the exit code for main()
  int run(int argc, const char* const* argv, const std::function<StatusOr<int>()>& body);

  /// True if the option was given on the command line or in the --config file.
  [[nodiscard]] bool given(const std::string& flag) const;
  /// True if the option was given with a value other than its default.
  [[nodiscard]] bool differs(const std::string& flag) const;

  /// The form of the output: `format`, or "json" with --json. Errors: kUsage if --format names
  /// another one.
  [[nodiscard]] StatusOr<std::string> form_of(const std::string& format) const;

  /// Writes a result to -o, or to stdout without -o. Files are written to a temporary name and
  /// renamed; existing files are replaced only with --force.
  Status write_output(std::string_view bytes) { return write_file(common_.output, bytes); }
  /// The same for another path; "" and "-" are stdout.
  Status write_file(const std::string& path, std::string_view bytes, Flush flush = Flush::kYes);

  /// Logs a line for users on stderr, with a time stamp. -q suppresses all but errors, -v adds
  /// kDebug.
  void log(LogLevel level, std::string_view text) const;
  /// log() as a function for libraries; the tool must outlive it.
  [[nodiscard]] LogSink log_sink() const;
  /// Prints an error as run() does; for tools that continue after it.
  void report(const Status& status) const;

 private:
  void add_common_options();
  Status parse(int argc, const char* const* argv);
  Status parse_error(const CLI::ParseError& error);
  StatusOr<int> run_body(int argc, const char* const* argv,
                         const std::function<StatusOr<int>()>& body);
  [[nodiscard]] std::string help(bool all) const;
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::string effective_config() const;
  [[nodiscard]] bool on_command_line(const CLI::Option& option) const;

  ToolInfo info_;
  CLI::App app_;
  CommonOptions common_;
  std::set<const CLI::Option*> rare_;
  std::vector<std::string> arguments_;  // as typed
  std::set<std::string> config_keys_;
  bool want_help_ = false;
  bool want_help_all_ = false;
  bool want_version_ = false;
  bool want_manual_ = false;
  bool want_bash_completion_ = false;
  bool want_zsh_completion_ = false;
  bool print_config_ = false;
};

}  // namespace millrace::tools
