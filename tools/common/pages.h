#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace millrace::tools {

struct ToolInfo;

/// Script that completes the options of a tool in bash, generated from its options; installed as
/// share/bash-completion/completions/<tool>.
std::string bash_completion(const ToolInfo& info, const CLI::App& app);

/// The same for zsh: share/zsh/site-functions/_<tool>.
std::string zsh_completion(const ToolInfo& info, const CLI::App& app);

/// The tool's page for man(1), generated from its options, including the rare ones.
/// \param version  of millrace, for the foot of the page
std::string manual_page(const ToolInfo& info, const CLI::App& app, const std::string& version);

}  // namespace millrace::tools
