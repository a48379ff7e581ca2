#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::tools {

struct ToolInfo;

/// The text of --help, at most 80 columns wide: purpose, usage, options by group with their
/// defaults, examples, exit codes.
/// \param hidden  options to leave out (the rare ones, unless --help-all was given)
std::string help_text(const ToolInfo& info, const CLI::App& app,
                      const std::function<bool(const CLI::Option&)>& hidden);

/// Spellings of an option: "-o, --output FILE".
std::string option_label(const CLI::Option& option);

/// The description of an option, and its default.
std::string option_text(const CLI::Option& option);

/// True if the option takes no value.
bool is_flag(const CLI::Option& option);

/// Groups of the options in the order of --help; the options that all tools have are last.
std::vector<std::string> option_groups(const CLI::App& app);

/// Exit codes of a tool and what they mean, including those that all tools have.
std::map<int, std::string> exit_code_texts(const ToolInfo& info);

/// "name [OPTIONS] --program FILE [INPUT]": the text after "usage:".
std::string usage_line(const ToolInfo& info, const CLI::App& app);

}  // namespace millrace::tools
