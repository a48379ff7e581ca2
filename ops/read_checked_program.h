#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/import.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Reads a program file of either form, and checks it. Errors: those of read_program() and
/// check_program(), with the file name.
StatusOr<std::unique_ptr<Program>> read_checked_program(const OpRegistry& registry,
                                                        const std::string& path,
                                                        const ImportOptions& options = {});

}  // namespace millrace::ops
