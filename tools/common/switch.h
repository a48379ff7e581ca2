#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace millrace::tools {

/// Adds a boolean option that also takes a value: "--half-async", "--half-async=true",
/// "--half-async false", and true or false in the --config file. Without a value it means true,
/// whatever the default is. Values are true, false, on, off, yes, no, 1 and 0, in any case of
/// letters; anything else is an error.
CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                        const std::string& doc);

/// True for an option that add_switch() has added.
bool is_switch(const CLI::Option& option);

}  // namespace millrace::tools
