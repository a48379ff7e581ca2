#include "io/job_key.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringRef.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"

namespace millrace::io {
namespace {

constexpr size_t kLeastKeyBytes = 16;
constexpr size_t kMostKeyBytes = 4096;

const unsigned char* bytes_of_key(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

StatusOr<std::shared_ptr<const JobKey>> JobKey::read(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMostKeyBytes + 1));
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & S_IRWXO) != 0)
    return InvalidArgument("any user may read the key of the job")
        .in_file(path)
        .with_hint("chmod o-rwx");
  std::string secret = llvm::StringRef(text).rtrim().str();
  if (secret.size() < kLeastKeyBytes || secret.size() > kMostKeyBytes)
    return InvalidData("the key of a job: expected {} to {} bytes, found {}", kLeastKeyBytes,
                       kMostKeyBytes, secret.size())
        .in_file(path);
  return std::make_shared<const JobKey>(std::move(secret));
}

Status JobKey::make(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string random, nonce());
  const std::string text = llvm::toHex(random, true) + "\n";
  // under a temporary name, so that no process reads half of a key
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  ::unlink(temporary.c_str());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int problem = file < 0 ? errno : 0;
  if (file >= 0 && ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    problem = errno != 0 ? errno : EIO;
  if (file >= 0) ::close(file);
  if (problem == 0 && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST)
    problem = errno;
  if (file >= 0) ::unlink(temporary.c_str());
  if (problem == 0) return Ok();
  return IoError("cannot write the key of the job: {}", std::strerror(problem)).in_file(path);
}

StatusOr<std::string> JobKey::nonce() {
  std::string bytes(kBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(kBytes)) != 1)
    return Status(StatusCode::kResource, "the system has no random bytes for a connection");
  return bytes;
}

std::string JobKey::proof(Side side, std::string_view of_caller, std::string_view of_server) const {
  std::string text = side == Side::kServer ? "millrace job server 1" : "millrace job caller 1";
  text.append(of_caller).append(of_server);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int count = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()), bytes_of_key(text),
       text.size(), digest.data(), &count);
  return {reinterpret_cast<const char*>(digest.data()), count};
}

bool JobKey::is_proof(std::string_view proof, Side side, std::string_view of_caller,
                      std::string_view of_server) const {
  const std::string expected = this->proof(side, of_caller, of_server);
  return expected.size() == kBytes && proof.size() == kBytes &&
         CRYPTO_memcmp(expected.data(), proof.data(), kBytes) == 0;
}

}  // namespace millrace::io
