#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "io/checksum.h"
#include "io/params.h"

/// Manifest of parameter files in the original's format that millrace wrote. It is next to them,
/// never inside, so that they stay unchanged: `<folder>.manifest.json` for a folder with one file
/// per var, `<file>.manifest.json` for a combined file. Files without a manifest are loaded without
/// these checks.
/// Source: spec/distributed_io.md section 7, design/reliability.md promise C5.
namespace millrace::io {

/// A plain value.
struct ParamsManifest {
  struct File {
    std::string name;  ///< path relative to the folder; for a combined file its file name
    uint64_t size = 0;
    Checksum checksum;
    std::vector<std::string> vars;  ///< vars of a combined file, in order; else empty
  };
  /// A part of a table that a server wrote to its own disk.
  struct TablePart {
    std::string table;
    std::string endpoint;
    std::string file;  ///< path relative to the folder that the server may write to
    uint64_t size = 0;
    Checksum checksum;
  };
  std::vector<File> files;        ///< sorted by name
  std::vector<TablePart> tables;  ///< in order of servers
};

/// Path of the manifest of a folder or combined file.
std::string params_manifest_path(std::string_view target);

/// The JSON text; equal manifests have equal texts.
std::string params_manifest_text(const ParamsManifest& manifest);
/// Parses the text. Errors: kInvalidData; kUnimplemented for another version.
StatusOr<ParamsManifest> parse_params_manifest(std::string_view text);

/// Size and checksum of a file. Errors: kNotFound, kIo.
StatusOr<ParamsManifest::File> file_facts(const std::string& path, std::string name);

/// The names of the vars, in order.
std::vector<std::string> names_of(llvm::ArrayRef<ParamSpec> specs);

/// Writes the manifest of a folder with these files, each of which is read again.
/// Errors: those of reading and writing.
Status write_folder_manifest(const std::string& folder, llvm::ArrayRef<std::string> names,
                             std::vector<ParamsManifest::TablePart> tables, bool sync);
/// Writes the manifest of a combined file with these vars. Errors: as above.
Status write_file_manifest(const std::string& path, llvm::ArrayRef<std::string> vars, bool sync);

/// Removes the manifests that a new file at `path` would invalidate: its own and that of its
/// folder.
void forget_manifests(const std::string& path);

/// How thoroughly files are compared with a manifest.
enum class CheckFiles { kSizes, kBytes };
/// Compares files that are about to be loaded from a folder with its manifest, if there is one.
/// Files that it does not list are not checked.
/// Errors: kInvalidData with file, expected and found; those of reading.
Status check_folder(const std::string& folder, llvm::ArrayRef<std::string> names, CheckFiles how);
/// The same for a combined file, which must contain exactly these vars, in order.
Status check_file(const std::string& path, llvm::ArrayRef<std::string> vars);

}  // namespace millrace::io
