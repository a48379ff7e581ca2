#include "io/checkpoint/data_file.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::io {
namespace {

// Bytes are hashed and handed to the system while they are in the processor's cache.
constexpr size_t kPiece = size_t{256} << 10U;
constexpr size_t kMaxPieces = 64;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Writer {
 public:
  Writer(WritableFile& file, const DataFileOptions& options) : file_(file), options_(options) {}

  /// The bytes must stay until the next flush().
  Status add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span<const std::byte> piece = bytes.first(std::min(kPiece, bytes.size()));
      bytes = bytes.subspan(piece.size());
      whole_.add(piece);
      pieces_.push_back(as_text(piece));
      pending_ += piece.size();
      if (pending_ >= kPiece || pieces_.size() == kMaxPieces) MILLRACE_RETURN_IF_ERROR(flush());
    }
    return Ok();
  }

  Status flush() {
    if (pieces_.empty()) return Ok();
    MILLRACE_RETURN_IF_ERROR(file_.write(pieces_));
    written_ += pending_;
    if (options_.progress) options_.progress(pending_);
    pending_ = 0;
    pieces_.clear();
    return Ok();
  }

  Status add_item(const DataItem& item, StoredBytes& stored) {
    for (uint64_t at = 0; at < stored.size(); at += options_.block_bytes) {
      const uint64_t size = std::min(options_.block_bytes, stored.size() - at);
      block_.reset();
      if (item.read) {
        MILLRACE_RETURN_IF_ERROR(flush());  // what is pending may be in the buffer
        buffer_.resize(size);
        MILLRACE_RETURN_IF_ERROR(item.read(at, buffer_));
        MILLRACE_RETURN_IF_ERROR(add_block(buffer_));
      } else {
        MILLRACE_RETURN_IF_ERROR(add_block(item.memory.subspan(at, size)));
      }
      stored.blocks.push_back(block_.value());
    }
    return Ok();
  }

  [[nodiscard]] uint64_t written() const { return written_; }
  [[nodiscard]] Checksum checksum() const { return whole_.value(); }

 private:
  Status add_block(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span<const std::byte> piece = bytes.first(std::min(kPiece, bytes.size()));
      bytes = bytes.subspan(piece.size());
      block_.add(piece);
      MILLRACE_RETURN_IF_ERROR(add(piece));
    }
    return Ok();
  }

  WritableFile& file_;
  const DataFileOptions& options_;
  ChecksumStream whole_;
  ChecksumStream block_;
  std::vector<std::string_view> pieces_;
  std::vector<std::byte> buffer_;
  size_t pending_ = 0;
  uint64_t written_ = 0;
};

// The items in the order in which the file has them.
std::vector<size_t> file_order(const std::vector<DataItem>& items,
                               const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::pair<std::string_view, size_t>> by_name;
  for (size_t i = 0; i < items.size(); ++i) by_name.emplace_back(items[i].entry.name, i);
  std::ranges::sort(by_name);
  std::vector<size_t> order;
  for (const SafetensorsEntry& entry : entries) {
    order.push_back(std::ranges::lower_bound(by_name, std::string_view(entry.name), {},
                                             &std::pair<std::string_view, size_t>::first)
                        ->second);
  }
  return order;
}

StatusOr<DataFile> write_all(WritableFile& file, const std::vector<DataItem>& items,
                             const std::vector<SafetensorsEntry>& entries, std::string_view header,
                             const DataFileOptions& options) {
  DataFile written;
  written.items.resize(items.size());
  Writer writer(file, options);
  MILLRACE_RETURN_IF_ERROR(writer.add(std::as_bytes(std::span(header))));
  const std::vector<size_t> order = file_order(items, entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    StoredBytes& stored = written.items[order[i]];
    stored.begin = entries[i].begin;
    stored.end = entries[i].end;
    const DataItem& item = items[order[i]];
    if (!item.read && item.memory.size() != stored.size()) {
      return Internal("'{}': {} bytes in memory, {} by its dims", item.entry.name,
                      item.memory.size(), stored.size());
    }
    MILLRACE_RETURN_IF_ERROR(writer.add_item(item, stored));
  }
  MILLRACE_RETURN_IF_ERROR(writer.flush());
  if (options.sync) MILLRACE_RETURN_IF_ERROR(file.sync());
  MILLRACE_RETURN_IF_ERROR(file.close());
  written.file.size = writer.written();
  written.file.checksum = writer.checksum();
  return written;
}

}  // namespace

StatusOr<DataFile> write_data_file(FileCalls& calls, const std::string& path,
                                   const std::vector<DataItem>& items,
                                   const std::map<std::string, std::string>& metadata,
                                   const DataFileOptions& options) {
  std::vector<SafetensorsEntry> entries;
  for (const DataItem& item : items) entries.push_back(stored_form(item.entry));
  StatusOr<std::string> header = lay_out_safetensors(entries, metadata);
  if (!header.ok()) return std::move(header).status().in_file(path);
  const uint64_t bytes = entries.empty() ? header->size() : entries.back().end;
  StatusOr<std::unique_ptr<WritableFile>> file =
      calls.create(path, {.bytes = bytes, .sync = options.sync});
  if (!file.ok()) return std::move(file).status();
  StatusOr<DataFile> written = write_all(**file, items, entries, *header, options);
  if (!written.ok()) {
    file->reset();  // closes
    const Status removed = calls.remove(path);
    if (removed.ok()) return written;
    return std::move(written).status().with_note("its temporary file stays: " + removed.message());
  }
  written->file.name = std::filesystem::path(path).filename().string();
  return written;
}

}  // namespace millrace::io
