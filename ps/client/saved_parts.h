#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/params_manifest.h"

/// Reports of servers about files that they have written on their own disks.
namespace millrace::ps {

/// The files of all servers, for the manifest of a save.
using SavedParts = std::vector<io::ParamsManifest::TablePart>;

/// The response to a checkpoint request: "<size> <checksum> <name>". Errors: those of reading the
/// file.
/// \param path  path of the file
/// \param name  its name relative to the allowed folder
StatusOr<std::string> saved_part_text(const std::string& path, const std::string& name);

/// Parses such a response. Errors: kDistributed naming the server if it is malformed.
StatusOr<io::ParamsManifest::TablePart> read_saved_part(const std::string& text, std::string table,
                                                        std::string endpoint);

}  // namespace millrace::ps
