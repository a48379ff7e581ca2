#pragma once

#include <functional>
#include <string>

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

}  // namespace millrace::tools
