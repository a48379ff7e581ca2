#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "io/checkpoint/checksum.h"
#include "io/params.h"

/// What we know of files of the original that we wrote. It lies beside them, never inside, so that
/// they stay as they are: `<folder>.manifest.json` for a folder of one file a var,
/// `<file>.manifest.json` for a combined file. Files without it are loaded as they are.
/// Source: spec/distributed_io.md section 7, design/reliability.md promise C5.
namespace millrace::io {

/// A plain value.
struct ParamsManifest {
  struct File {
    std::string name;  ///< below the folder; of a combined file its last component
    uint64_t size = 0;
    Checksum checksum;
    std::vector<std::string> vars;  ///< in a combined file, in order; else none
  };
  /// What a server wrote on its own disk.
  struct TablePart {
    std::string table;
    std::string endpoint;
    std::string file;  ///< below the folder that the server was allowed
    uint64_t size = 0;
    Checksum checksum;
  };
  std::vector<File> files;        ///< by name
  std::vector<TablePart> tables;  ///< in order of servers
};

/// Where the manifest of a folder or combined file lies.
std::string params_manifest_path(std::string_view target);

/// The JSON text; same manifest, same bytes.
std::string params_manifest_text(const ParamsManifest& manifest);
/// Reads it. Errors: kInvalidData; kUnimplemented for another version.
StatusOr<ParamsManifest> parse_params_manifest(std::string_view text);

/// Size and checksum of a file. Errors: kNotFound, kIo.
StatusOr<ParamsManifest::File> file_facts(const std::string& path, std::string name);

/// The names of vars, in order.
std::vector<std::string> names_of(llvm::ArrayRef<ParamSpec> specs);

/// Writes the manifest of a folder that has these files, each of which is read once more.
/// Errors: those of reading and writing.
Status write_folder_manifest(const std::string& folder, llvm::ArrayRef<std::string> names,
                             std::vector<ParamsManifest::TablePart> tables, bool sync);
/// Writes the manifest of a combined file of these vars. Errors: as above.
Status write_file_manifest(const std::string& path, llvm::ArrayRef<std::string> vars, bool sync);

/// Takes away the manifests that a new file would make wrong: its own and that of its folder.
void forget_manifests(const std::string& path);

/// How thoroughly files are compared with a manifest.
enum class CheckFiles { kSizes, kBytes };
/// Compares what is about to be loaded from a folder with its manifest, if there is one. Files that
/// it does not list are not looked at.
/// Errors: kInvalidData with file, expected and found; those of reading.
Status check_folder(const std::string& folder, llvm::ArrayRef<std::string> names, CheckFiles how);
/// The same for a combined file, whose vars must be these, in order.
Status check_file(const std::string& path, llvm::ArrayRef<std::string> vars);

}  // namespace millrace::io
