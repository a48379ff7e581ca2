#include <utility>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/write_parts.h"

// Text form of what a rank has written. Sender and receiver are the same build, so the form is
// compact: lists with a fixed order of fields.
namespace millrace::io {
namespace parts_text_parts {
namespace {

void write(JsonWriter& out, const StoredBytes& bytes) {
  out.begin_array().value(static_cast<int64_t>(bytes.file)).value(bytes.begin).value(bytes.end);
  for (const Checksum& block : bytes.blocks) out.value(block.text());
  out.end_array();
}

void write(JsonWriter& out, const Lod& lod) {
  out.begin_array();
  if (!lod.empty()) {
    for (const LodLevel& level : lod.levels()) {
      out.begin_array();
      for (const int64_t offset : level) out.value(offset);
      out.end_array();
    }
  }
  out.end_array();
}

Status malformed() {
  return Internal("the message about the files that a rank has written is malformed");
}

StatusOr<Checksum> read_checksum(const JsonValue& value) {
  const auto* const text = value.get_if<std::string>();
  const auto checksum = text == nullptr ? std::nullopt : Checksum::parse(*text);
  if (!checksum) return malformed();
  return *checksum;
}

StatusOr<int64_t> read_count(const JsonItems& items, size_t index) {
  const auto number = index < items.size() ? items[index].count() : std::nullopt;
  if (!number) return malformed();
  return *number;
}

StatusOr<StoredBytes> read_bytes(const JsonValue& value) {
  const auto* const items = value.get_if<JsonItems>();
  if (items == nullptr) return malformed();
  StoredBytes bytes;
  MILLRACE_ASSIGN_OR_RETURN(const int64_t file, read_count(*items, 0));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t begin, read_count(*items, 1));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t end, read_count(*items, 2));
  bytes.file = static_cast<int32_t>(file);
  bytes.begin = static_cast<uint64_t>(begin);
  bytes.end = static_cast<uint64_t>(end);
  for (size_t i = 3; i < items->size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const Checksum block, read_checksum((*items)[i]));
    bytes.blocks.push_back(block);
  }
  return bytes;
}

StatusOr<Lod> read_lod(const JsonValue& value) {
  const auto* const items = value.get_if<JsonItems>();
  if (items == nullptr) return malformed();
  std::vector<LodLevel> levels;
  for (const JsonValue& item : *items) {
    auto offsets = item.counts();
    if (!offsets) return malformed();
    levels.push_back(*std::move(offsets));
  }
  return levels.empty() ? Lod() : Lod(std::move(levels));
}

// The lists of one kind: files, chunks or records.
StatusOr<const JsonItems*> items_of(const JsonItems& root, size_t index) {
  const auto* const items = index < root.size() ? root[index].get_if<JsonItems>() : nullptr;
  if (items == nullptr) return malformed();
  return items;
}

StatusOr<std::string> read_text(const JsonItems& items, size_t index) {
  const auto* const text = index < items.size() ? items[index].get_if<std::string>() : nullptr;
  if (text == nullptr) return malformed();
  return *text;
}

}  // namespace
}  // namespace parts_text_parts

std::string parts_text(const WrittenParts& parts) {
  using namespace parts_text_parts;
  JsonWriter out(0);
  out.begin_array().begin_array();
  for (const StoredFile& file : parts.files) {
    out.begin_array().value(file.name).value(file.size).value(file.checksum.text()).end_array();
  }
  out.end_array().begin_array();
  for (const WrittenParts::Chunk& chunk : parts.chunks) {
    out.begin_array().value(static_cast<uint64_t>(chunk.chunk));
    write(out, chunk.data);
    write(out, chunk.rows);
    write(out, chunk.lod);
    out.end_array();
  }
  out.end_array().begin_array();
  for (const StoredRecord& record : parts.records) {
    out.begin_array().value(record.name).value(static_cast<int64_t>(record.rank));
    write(out, record.data);
    out.end_array();
  }
  return out.end_array().end_array().take();
}

StatusOr<WrittenParts> parse_parts(const JsonValue& value) {
  using namespace parts_text_parts;
  const auto* const root = value.get_if<JsonItems>();
  if (root == nullptr) return malformed();
  WrittenParts parts;
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const files, items_of(*root, 0));
  for (size_t i = 0; i < files->size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const item, items_of(*files, i));
    StoredFile file;
    MILLRACE_ASSIGN_OR_RETURN(file.name, read_text(*item, 0));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t size, read_count(*item, 1));
    file.size = static_cast<uint64_t>(size);
    if (item->size() != 3) return malformed();
    MILLRACE_ASSIGN_OR_RETURN(file.checksum, read_checksum((*item)[2]));
    parts.files.push_back(std::move(file));
  }
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const chunks, items_of(*root, 1));
  for (size_t i = 0; i < chunks->size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const item, items_of(*chunks, i));
    WrittenParts::Chunk chunk;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t index, read_count(*item, 0));
    chunk.chunk = static_cast<size_t>(index);
    if (item->size() != 4) return malformed();
    MILLRACE_ASSIGN_OR_RETURN(chunk.data, read_bytes((*item)[1]));
    MILLRACE_ASSIGN_OR_RETURN(chunk.rows, read_bytes((*item)[2]));
    MILLRACE_ASSIGN_OR_RETURN(chunk.lod, read_lod((*item)[3]));
    parts.chunks.push_back(std::move(chunk));
  }
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const records, items_of(*root, 2));
  for (size_t i = 0; i < records->size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const item, items_of(*records, i));
    StoredRecord record;
    MILLRACE_ASSIGN_OR_RETURN(record.name, read_text(*item, 0));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t rank, read_count(*item, 1));
    record.rank = static_cast<int32_t>(rank);
    if (item->size() != 3) return malformed();
    MILLRACE_ASSIGN_OR_RETURN(record.data, read_bytes((*item)[2]));
    parts.records.push_back(std::move(record));
  }
  return parts;
}

}  // namespace millrace::io
