#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/params_manifest.h"

/// What servers answer about files that they have written on their own disks.
namespace millrace::ps {

/// Of all of them, for the manifest of a save.
using SavedParts = std::vector<io::ParamsManifest::TablePart>;

/// The answer to a checkpoint request: "<size> <checksum> <name>". Errors: those of reading the
/// file. \param path  of the file  \param name  of it below the folder that was allowed
StatusOr<std::string> saved_part_text(const std::string& path, const std::string& name);

/// Reads such an answer. Errors: kDistributed naming the server if it is none.
StatusOr<io::ParamsManifest::TablePart> read_saved_part(const std::string& text, std::string table,
                                                        std::string endpoint);

}  // namespace millrace::ps
