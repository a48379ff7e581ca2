#include "ps/server/server_term.h"

#include <filesystem>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/text.h"

namespace millrace::ps {
namespace {

constexpr int64_t kMostTermBytes = 64;

}  // namespace

ServerTerm::ServerTerm(const std::string& root, int64_t server)
    : path_(fmt::format("{}/server-{}.term", root, server)) {}

StatusOr<uint64_t> ServerTerm::read() const {
  StatusOr<std::string> text = read_file(path_, kMostTermBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return uint64_t{0};
  if (!text.ok())
    return std::move(text).status().with_note("while reading the term of a server, " +
                                              printable(path_));
  uint64_t term = 0;
  if (llvm::StringRef(*text).rtrim().getAsInteger(10, term) || term == 0 || term > UINT32_MAX)
    return InvalidData("expected the term of a server in {}, a number from 1 to {}",
                       printable(path_), UINT32_MAX);
  return term;
}

Status ServerTerm::write(uint64_t term) const {
  if (term > UINT32_MAX)
    return {StatusCode::kResource,
            fmt::format("this server has used up its terms, the last is in {}", printable(path_))};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  if (error) return IoError("cannot create the folder of {}: {}", path_, error.message());
  return write_file_atomically(path_, fmt::format("{}\n", term), Replace::kYes)
      .with_note("while writing the term of a server, " + printable(path_));
}

}  // namespace millrace::ps
