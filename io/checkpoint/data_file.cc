#include "io/checkpoint/data_file.h"

#include <algorithm>
#include <filesystem>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/exceptions.h"

namespace millrace::io {
namespace {

// Bytes are hashed and written in pieces of this size, which stay in the processor's cache.
constexpr size_t kPiece = size_t{256} << 10U;
constexpr size_t kMaxPieces = 64;
// Writing smaller files takes less time than starting a thread for their checksums.
constexpr uint64_t kWorthThread = uint64_t{4} << 20U;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls fn(piece) for the bytes, piece by piece, until one fails.
template <typename Fn>
Status each_piece(std::span<const std::byte> bytes, Fn&& fn) {
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(kPiece, bytes.size()));
    bytes = bytes.subspan(piece.size());
    MILLRACE_RETURN_IF_ERROR(fn(piece));
  }
  return Ok();
}

class Writer {
 public:
  Writer(WritableFile& file, const DataFileOptions& options) : file_(file), options_(options) {}

  /// The bytes must stay valid until the next flush().
  Status add(std::span<const std::byte> bytes) {
    return each_piece(bytes, [this](std::span<const std::byte> piece) {
      pieces_.push_back(as_text(piece));
      pending_ += piece.size();
      return pending_ >= kPiece || pieces_.size() == kMaxPieces ? flush() : Ok();
    });
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

  [[nodiscard]] uint64_t written() const { return written_; }

 private:
  WritableFile& file_;
  const DataFileOptions& options_;
  std::vector<std::string_view> pieces_;
  size_t pending_ = 0;
  uint64_t written_ = 0;
};

// Computes the checksums of the bytes of a file. Passes the bytes to a writer, if there is one,
// while they are in the processor's cache.
class Hasher {
 public:
  /// \param writer  null: the bytes are written elsewhere, and items must be in memory
  Hasher(uint64_t block_bytes, Writer* writer) : block_bytes_(block_bytes), writer_(writer) {}

  Status add(std::span<const std::byte> bytes) {
    whole_.add(bytes);
    return writer_ == nullptr ? Ok() : writer_->add(bytes);
  }

  /// \param size  size of the item in bytes
  Status add_item(const DataItem& item, uint64_t size, std::vector<Checksum>& blocks) {
    for (uint64_t at = 0; at < size; at += block_bytes_) {
      const uint64_t here = std::min(block_bytes_, size - at);
      if (item.read) {
        MILLRACE_RETURN_IF_ERROR(writer_->flush());  // pending bytes may refer to the buffer
        buffer_.resize(here);
        MILLRACE_RETURN_IF_ERROR(item.read(at, buffer_));
      }
      block_.reset();
      MILLRACE_RETURN_IF_ERROR(add_block(item.read ? buffer_ : item.memory.subspan(at, here)));
      blocks.push_back(block_.value());
    }
    return Ok();
  }

  [[nodiscard]] Checksum checksum() const { return whole_.value(); }

 private:
  Status add_block(std::span<const std::byte> bytes) {
    return each_piece(bytes, [this](std::span<const std::byte> piece) {
      block_.add(piece);
      return add(piece);
    });
  }

  uint64_t block_bytes_;
  Writer* writer_;
  ChecksumStream whole_;
  ChecksumStream block_;
  std::vector<std::byte> buffer_;
};

// The indices of the items in file order.
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

// One item and its position in the file.
struct PlacedItem {
  const DataItem* item;
  StoredBytes* stored;
};

StatusOr<std::vector<PlacedItem>> placed(const std::vector<DataItem>& items,
                                         const std::vector<SafetensorsEntry>& entries,
                                         DataFile& file) {
  file.items.resize(items.size());
  const std::vector<size_t> order = file_order(items, entries);
  std::vector<PlacedItem> result;
  for (size_t i = 0; i < entries.size(); ++i) {
    const DataItem& item = items[order[i]];
    StoredBytes& stored = file.items[order[i]];
    stored.begin = entries[i].begin;
    stored.end = entries[i].end;
    if (!item.read && item.memory.size() != stored.size()) {
      return Internal("'{}': {} bytes in memory, {} by its dims", item.entry.name,
                      item.memory.size(), stored.size());
    }
    result.push_back({&item, &stored});
  }
  return result;
}

// \param writer  as for Hasher
StatusOr<Checksum> hash_all(std::string_view header, const std::vector<PlacedItem>& items,
                            uint64_t block_bytes, Writer* writer,
                            const std::stop_token& stop = {}) {
  Hasher hasher(block_bytes, writer);
  MILLRACE_RETURN_IF_ERROR(hasher.add(std::as_bytes(std::span(header))));
  for (const PlacedItem& item : items) {
    if (stop.stop_requested()) break;
    MILLRACE_RETURN_IF_ERROR(hasher.add_item(*item.item, item.stored->size(), item.stored->blocks));
  }
  // pending bytes may refer to the hasher's buffer
  if (writer != nullptr) MILLRACE_RETURN_IF_ERROR(writer->flush());
  return hasher.checksum();
}

// Another thread hashes concurrently, so that the file takes no longer than writing it.
StatusOr<Checksum> write_hashed_aside(Writer& writer, std::string_view header,
                                      const std::vector<PlacedItem>& items, uint64_t block_bytes) {
  StatusOr<Checksum> whole = Checksum{};
  std::jthread hashing([&](const std::stop_token& stop) {
    Status hashed = without_exceptions("while the checkpoint is hashed", [&]() -> Status {
      whole = hash_all(header, items, block_bytes, nullptr, stop);
      return Ok();
    });
    if (!hashed.ok()) whole = std::move(hashed);
  });
  MILLRACE_RETURN_IF_ERROR(writer.add(std::as_bytes(std::span(header))));
  for (const PlacedItem& item : items) MILLRACE_RETURN_IF_ERROR(writer.add(item.item->memory));
  MILLRACE_RETURN_IF_ERROR(writer.flush());
  hashing.join();
  return whole;
}

bool all_in_memory(const std::vector<PlacedItem>& items) {
  return std::ranges::none_of(items, [](const PlacedItem& item) { return bool(item.item->read); });
}

StatusOr<DataFile> write_all(WritableFile& file, const std::vector<DataItem>& items,
                             const std::vector<SafetensorsEntry>& entries, std::string_view header,
                             const DataFileOptions& options) {
  DataFile written;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<PlacedItem> order, placed(items, entries, written));
  Writer writer(file, options);
  const uint64_t bytes = entries.empty() ? 0 : entries.back().end;
  const bool aside = options.hash_aside && bytes >= kWorthThread && all_in_memory(order);
  MILLRACE_ASSIGN_OR_RETURN(written.file.checksum,
                            aside ? write_hashed_aside(writer, header, order, options.block_bytes)
                                  : hash_all(header, order, options.block_bytes, &writer));
  if (options.sync) MILLRACE_RETURN_IF_ERROR(file.sync());
  MILLRACE_RETURN_IF_ERROR(file.close());
  written.file.size = writer.written();
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
    return std::move(written).status().with_note("its temporary file was not removed: " +
                                                 removed.message());
  }
  written->file.name = std::filesystem::path(path).filename().string();
  return written;
}

}  // namespace millrace::io
