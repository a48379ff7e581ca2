#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::tools {

struct ToolInfo;

/// The text of --help in at most 80 columns: purpose, usage, options by group with their defaults,
/// examples, exit codes.
/// \param hidden  options that are left out (the rare ones, unless --help-all was asked for)
std::string help_text(const ToolInfo& info, const CLI::App& app,
                      const std::function<bool(const CLI::Option&)>& hidden);

/// Spellings of an option: "-o, --output FILE".
std::string option_label(const CLI::Option& option);

/// What it does, and its default.
std::string option_text(const CLI::Option& option);

/// True where no value follows it.
bool is_flag(const CLI::Option& option);

/// Groups of the options in the order of --help: what all tools have stands last.
std::vector<std::string> option_groups(const CLI::App& app);

/// Exit codes of a tool and what they mean, those that all tools have included.
std::map<int, std::string> exit_code_texts(const ToolInfo& info);

/// "name [OPTIONS] --program FILE [INPUT]": what stands behind "usage:".
std::string usage_line(const ToolInfo& info, const CLI::App& app);

}  // namespace millrace::tools
