#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace millrace::tools {

/// Adds a boolean option that also takes a value: "--half-async", "--half-async=true",
/// "--half-async false", and true or false in the --config file. Without a value it means true,
/// whatever the default is. Values are those of CLI11 flags: true, false, on, off, yes, no, 1, 0.
CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                        const std::string& doc);

}  // namespace millrace::tools
