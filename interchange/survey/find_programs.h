#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"

namespace millrace::interchange {

/// The most files and folders that find_programs() looks at.
inline constexpr size_t kMostEntries = 1'000'000;

/// Whether a file has a name that programs usually have: `__model__`, `__startup__`, names that end
/// in `.pdmodel`, `.pb`, `_program`, `_program.desc` or `.desc`; or that of an ONNX model.
bool is_program_name(llvm::StringRef filename);

/// Whether a file has a name that ONNX models have: one that ends in `.onnx`.
bool is_onnx_name(llvm::StringRef filename);

/// Whether a file has a name that PIR programs have: one that ends in `.json`.
bool is_pir_name(llvm::StringRef filename);

/// The files below a folder whose names are those of programs, and PIR programs, sorted, as paths
/// that start with `folder`. Links are not followed. If `folder` is a file, the result is that
/// file. Errors: kNotFound if there is no such file or folder; kIo if a folder cannot be read;
/// kResource above kMostEntries entries.
StatusOr<std::vector<std::string>> find_programs(const std::string& folder);

}  // namespace millrace::interchange
