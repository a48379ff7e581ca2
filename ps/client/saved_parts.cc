#include "ps/client/saved_parts.h"

#include <utility>

namespace millrace::ps {

io::ParamsManifest::TablePart saved_part(protocol::SavedFile file, std::string table,
                                         std::string endpoint) {
  io::ParamsManifest::TablePart part;
  part.table = std::move(table);
  part.endpoint = std::move(endpoint);
  part.file = std::move(file.name);
  part.size = file.size;
  part.checksum = file.checksum;
  return part;
}

}  // namespace millrace::ps
