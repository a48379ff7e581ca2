#pragma once

#include <string>
#include <vector>

#include "io/params_manifest.h"
#include "ps/protocol/answers.h"

/// Files that servers have written on their own disks, for the manifest of a save.
namespace millrace::ps {

/// The files of all servers.
using SavedParts = std::vector<io::ParamsManifest::TablePart>;

/// The entry of a server's file of a table.
io::ParamsManifest::TablePart saved_part(protocol::SavedFile file, std::string table,
                                         std::string endpoint);

}  // namespace millrace::ps
