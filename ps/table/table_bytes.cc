#include "ps/table/table_bytes.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <xxhash.h>

#include "framework/base/errors.h"
#include "io/byte_source.h"
#include "io/output_file.h"

namespace millrace::ps {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20U;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using Hash = std::unique_ptr<XXH3_state_t, FreeHash>;

Hash new_hash() {
  Hash hash(XXH3_createState());
  XXH3_128bits_reset(hash.get());
  return hash;
}

// Big-endian, the usual print order of the checksum.
XXH128_canonical_t digest(const Hash& hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(hash.get()));
  return bytes;
}

class FileWriter final : public TableWriter {
 public:
  explicit FileWriter(io::OutputFile file) : file_(std::move(file)), hash_(new_hash()) {}

  Status write(const void* bytes, size_t count) override {
    buffer_.append(static_cast<const char*>(bytes), count);
    return buffer_.size() < kBufferBytes ? Ok() : flush();
  }
  Status commit() override {
    MILLRACE_RETURN_IF_ERROR(flush());
    const XXH128_canonical_t sum = digest(hash_);
    buffer_.assign(reinterpret_cast<const char*>(sum.digest), sizeof(sum.digest));
    const std::string_view piece = buffer_;
    MILLRACE_RETURN_IF_ERROR(file_.write({&piece, 1}));
    return file_.commit(/*sync=*/true);
  }

 private:
  Status flush() {
    XXH3_128bits_update(hash_.get(), buffer_.data(), buffer_.size());
    const std::string_view piece = buffer_;
    MILLRACE_RETURN_IF_ERROR(file_.write({&piece, 1}));
    buffer_.clear();
    return Ok();
  }

  io::OutputFile file_;
  Hash hash_;
  std::string buffer_;
};

class FileReader final : public TableReader {
 public:
  explicit FileReader(io::ByteSource source) : source_(std::move(source)) {}

  Status check(std::string_view mark) {
    constexpr size_t kSum = sizeof(XXH128_canonical_t);
    std::string found(mark.size(), '\0');
    if (source_.size() < mark.size() + kSum)
      return InvalidData("{} bytes are too short for a table file", source_.size())
          .in_file(source_.name());
    end_ = source_.size() - kSum;
    const Hash hash = new_hash();
    for (uint64_t at = 0; at < end_; at += kBufferBytes) {
      buffer_.resize(std::min<uint64_t>(kBufferBytes, end_ - at));
      MILLRACE_RETURN_IF_ERROR(source_.read(at, std::as_writable_bytes(std::span(buffer_))));
      if (at == 0) found = buffer_.substr(0, mark.size());
      XXH3_128bits_update(hash.get(), buffer_.data(), buffer_.size());
    }
    if (found != mark)
      return InvalidData("it is not a file of this kind of table, its first bytes are wrong")
          .in_file(source_.name());
    XXH128_canonical_t expected;
    MILLRACE_RETURN_IF_ERROR(
        source_.read(end_, std::as_writable_bytes(std::span(expected.digest))));
    const XXH128_canonical_t sum = digest(hash);
    if (std::memcmp(&sum, &expected, kSum) != 0)
      return InvalidData("its checksum is wrong").in_file(source_.name());
    buffer_.clear();
    next_ = mark.size();
    return Ok();
  }

  [[nodiscard]] uint64_t left() const override { return end_ - next_ + (buffer_.size() - at_); }

  Status read(void* bytes, size_t count) override {
    if (count > left())
      return InvalidData("{} bytes are missing at its end", count - left()).in_file(source_.name());
    auto* to = static_cast<char*>(bytes);
    while (count > 0) {
      if (at_ == buffer_.size()) {
        buffer_.resize(std::min<uint64_t>(kBufferBytes, end_ - next_));
        MILLRACE_RETURN_IF_ERROR(source_.read(next_, std::as_writable_bytes(std::span(buffer_))));
        next_ += buffer_.size();
        at_ = 0;
      }
      const size_t some = std::min(count, buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + at_, some);
      to += some;
      at_ += some;
      count -= some;
    }
    return Ok();
  }

 private:
  io::ByteSource source_;
  uint64_t end_ = 0;   ///< of the content
  uint64_t next_ = 0;  ///< offset of the first byte after the buffer
  std::string buffer_;
  size_t at_ = 0;  ///< position in the buffer
};

}  // namespace

StatusOr<std::unique_ptr<TableWriter>> TableWriter::create(const std::string& path,
                                                           std::string_view mark) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return IoError("cannot create the folder: {}", error.message()).in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(io::OutputFile file, io::OutputFile::create(path, Replace::kYes));
  auto writer = std::make_unique<FileWriter>(std::move(file));
  MILLRACE_RETURN_IF_ERROR(writer->write(mark.data(), mark.size()));
  return std::unique_ptr<TableWriter>(std::move(writer));
}

StatusOr<std::unique_ptr<TableReader>> TableReader::open(const std::string& path,
                                                         std::string_view mark) {
  MILLRACE_ASSIGN_OR_RETURN(io::ByteSource source, io::ByteSource::open(path));
  auto reader = std::make_unique<FileReader>(std::move(source));
  MILLRACE_RETURN_IF_ERROR(reader->check(mark));
  return std::unique_ptr<TableReader>(std::move(reader));
}

}  // namespace millrace::ps
