#include "ps/client/saved_parts.h"

#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

namespace millrace::ps {

StatusOr<std::string> saved_part_text(const std::string& path, const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(const io::ParamsManifest::File file, io::file_facts(path, name));
  return fmt::format("{} {} {}", file.size, file.checksum.text(), file.name);
}

StatusOr<io::ParamsManifest::TablePart> read_saved_part(const std::string& text, std::string table,
                                                        std::string endpoint) {
  const auto [size, rest] = llvm::StringRef(text).split(' ');
  const auto [digits, file] = rest.split(' ');
  io::ParamsManifest::TablePart part;
  const auto checksum = io::Checksum::parse(digits);
  if (size.getAsInteger(10, part.size) || !checksum || file.empty()) {
    return Status(StatusCode::kDistributed,
                  fmt::format("the server at {} did not report which file it wrote", endpoint));
  }
  part.table = std::move(table);
  part.endpoint = std::move(endpoint);
  part.file = file.str();
  part.checksum = *checksum;
  return part;
}

}  // namespace millrace::ps
