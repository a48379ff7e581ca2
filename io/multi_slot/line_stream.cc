#include "io/multi_slot/line_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#ifdef MILLRACE_ZSTD
#include <zstd.h>
#endif

#include "framework/base/errors.h"

namespace millrace::io {
namespace {

constexpr size_t kMaxLineBytes = size_t{256} << 20U;
constexpr size_t kCompressedPiece = size_t{256} << 10U;

std::string system_error() {
  return std::error_code(errno, std::generic_category()).message();
}

class PlainBytes : public InputBytes {
 public:
  PlainBytes(int fd, bool owned) : fd_(fd), owned_(owned) {}
  PlainBytes(const PlainBytes&) = delete;
  PlainBytes& operator=(const PlainBytes&) = delete;
  ~PlainBytes() override {
    if (owned_) close(fd_);
  }

  StatusOr<size_t> read(char* to, size_t size) override {
    const size_t kept = std::min(size, first_.size() - given_);
    if (kept > 0) {
      std::memcpy(to, first_.data() + given_, kept);
      given_ += kept;
      return kept;
    }
    while (true) {
      const ssize_t done = ::read(fd_, to, size);
      if (done >= 0) return static_cast<size_t>(done);
      if (errno != EINTR) return IoError("cannot read: {}", system_error());
    }
  }

  // Reads the first bytes without consuming them; read() returns them again.
  StatusOr<std::string_view> peek(size_t size) {
    std::array<char, 16> piece{};
    while (first_.size() < size) {
      MILLRACE_ASSIGN_OR_RETURN(const size_t done, read(piece.data(), size - first_.size()));
      if (done == 0) break;
      first_.append(piece.data(), done);
      given_ = first_.size();
    }
    given_ = 0;
    return std::string_view(first_);
  }

 private:
  int fd_;
  bool owned_;
  std::string first_;
  size_t given_ = 0;
};

class GzipBytes : public InputBytes {
 public:
  explicit GzipBytes(std::unique_ptr<InputBytes> from) : from_(std::move(from)) {}
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;
  ~GzipBytes() override {
    if (open_) inflateEnd(&state_);
  }

  Status open() {
    constexpr int kGzipOnly = 15 + 16;
    open_ = inflateInit2(&state_, kGzipOnly) == Z_OK;
    return open_ ? Ok() : Status(StatusCode::kResource, "no memory for decompression");
  }

  StatusOr<size_t> read(char* to, size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, UINT32_MAX));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.avail_in == 0) {
        MILLRACE_ASSIGN_OR_RETURN(const size_t done, from_->read(piece_.data(), piece_.size()));
        if (done == 0 && inside_) return InvalidData("truncated gzip stream");
        if (done == 0) return size_t{0};
        state_.next_in = reinterpret_cast<Bytef*>(piece_.data());
        state_.avail_in = static_cast<uInt>(done);
      }
      if (!inside_ && inflateReset(&state_) != Z_OK) return InvalidData("damaged gzip stream");
      inside_ = true;
      const int result = inflate(&state_, Z_NO_FLUSH);
      // another gzip member may follow
      if (result == Z_STREAM_END) inside_ = false;
      if (result != Z_STREAM_END && result != Z_OK && result != Z_BUF_ERROR)
        return InvalidData("damaged gzip stream: {}", state_.msg == nullptr ? "" : state_.msg);
    }
    return size_t{wanted - state_.avail_out};
  }

 private:
  std::unique_ptr<InputBytes> from_;
  std::vector<char> piece_ = std::vector<char>(kCompressedPiece);
  z_stream state_{};
  bool open_ = false;
  bool inside_ = false;
};

#ifdef MILLRACE_ZSTD
class ZstdBytes : public InputBytes {
 public:
  explicit ZstdBytes(std::unique_ptr<InputBytes> from)
      : from_(std::move(from)), state_(ZSTD_createDStream(), &ZSTD_freeDStream) {}

  StatusOr<size_t> read(char* to, size_t size) override {
    if (state_ == nullptr) return Status(StatusCode::kResource, "no memory for decompression");
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        MILLRACE_ASSIGN_OR_RETURN(const size_t done, from_->read(piece_.data(), piece_.size()));
        if (done == 0 && inside_) return InvalidData("truncated zstd stream");
        if (done == 0) return size_t{0};
        in_ = {piece_.data(), done, 0};
      }
      const size_t result = ZSTD_decompressStream(state_.get(), &out, &in_);
      if (ZSTD_isError(result) != 0)
        return InvalidData("damaged zstd stream: {}", ZSTD_getErrorName(result));
      inside_ = result != 0;
    }
    return out.pos;
  }

 private:
  std::unique_ptr<InputBytes> from_;
  std::vector<char> piece_ = std::vector<char>(kCompressedPiece);
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> state_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;
};
#endif

StatusOr<int> open_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return errno == ENOENT ? NotFound("there is no such file") : IoError("{}", system_error());
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(fd);
    return InvalidData("expected a regular file");
  }
  return fd;
}

StatusOr<std::unique_ptr<InputBytes>> open_bytes(const std::string& path) {
  int fd = STDIN_FILENO;
  if (path != "-") {
    MILLRACE_ASSIGN_OR_RETURN(fd, open_file(path));
  }
  auto plain = std::make_unique<PlainBytes>(fd, path != "-");
  MILLRACE_ASSIGN_OR_RETURN(const std::string_view first, plain->peek(5));
  MILLRACE_RETURN_IF_ERROR(refuse_parquet(first));
  if (first.starts_with("\x1f\x8b")) {
    auto gzip = std::make_unique<GzipBytes>(std::move(plain));
    MILLRACE_RETURN_IF_ERROR(gzip->open());
    return std::unique_ptr<InputBytes>(std::move(gzip));
  }
  if (first.starts_with("\x28\xb5\x2f\xfd")) {
#ifdef MILLRACE_ZSTD
    return std::unique_ptr<InputBytes>(std::make_unique<ZstdBytes>(std::move(plain)));
#else
    return Unimplemented("zstd files: this build has no zstd");
#endif
  }
  return std::unique_ptr<InputBytes>(std::move(plain));
}

}  // namespace

// The first value after the magic number is one of Thrift's compact protocol, so that text which
// begins with the same letters is no Parquet.
Status refuse_parquet(std::string_view first) {
  if (!first.starts_with("PAR1\x15")) return Ok();
  return Unimplemented("a Parquet file, which only the Python package reads")
      .with_hint("millrace.Dataset(program, files=['x.parquet'], ...), or convert it to csv");
}

StatusOr<std::unique_ptr<InputBytes>> open_input_bytes(const std::string& path) {
  StatusOr<std::unique_ptr<InputBytes>> bytes = open_bytes(path);
  if (!bytes.ok()) return std::move(bytes).status().in_file(path);
  return bytes;
}

LineStream::LineStream(std::unique_ptr<InputBytes> bytes, size_t piece_bytes)
    : bytes_(std::move(bytes)), buffer_(piece_bytes) {}

// Appends more bytes to the buffer.
Status LineStream::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (end_ > kMaxLineBytes)
      return InvalidData("line {}: longer than {} MiB", number_ + 1, kMaxLineBytes >> 20U);
    buffer_.resize(buffer_.size() * 2);
  }
  MILLRACE_ASSIGN_OR_RETURN(const size_t done,
                            bytes_->read(buffer_.data() + end_, buffer_.size() - end_));
  at_end_ = done == 0;
  end_ += done;
  return Ok();
}

void LineStream::count(std::string_view& line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (++number_ == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
}

StatusOr<bool> LineStream::next(std::string_view& line) {
  size_t searched = begin_;
  while (true) {
    const char* const found =
        static_cast<const char*>(std::memchr(buffer_.data() + searched, '\n', end_ - searched));
    if (found != nullptr) {
      line = {buffer_.data() + begin_, found};
      begin_ = static_cast<size_t>(found - buffer_.data()) + 1;
      count(line);
      return true;
    }
    if (at_end_) {
      if (begin_ == end_) return false;
      line = {buffer_.data() + begin_, end_ - begin_};
      begin_ = end_;
      count(line);
      return true;
    }
    searched = end_ - begin_;
    MILLRACE_RETURN_IF_ERROR(fill());
  }
}

}  // namespace millrace::io
