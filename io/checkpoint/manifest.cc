#include "io/checkpoint/manifest.h"

#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/manifest_form.h"

namespace millrace::io {
namespace {

void write_numbers(JsonWriter& out, const char* key, llvm::ArrayRef<int64_t> numbers) {
  out.key(key).begin_array().inline_array();
  for (const int64_t number : numbers) out.value(number);
  out.end_array();
}

void write_bytes(JsonWriter& out, const StoredBytes& bytes) {
  out.member("file", static_cast<int64_t>(bytes.file));
  out.member("begin", bytes.begin).member("end", bytes.end);
  out.key("blocks").begin_array();
  for (const Checksum& block : bytes.blocks) out.value(block.text());
  out.end_array();
}

void write_tensor(JsonWriter& out, const StoredTensor& tensor) {
  const bool rows = tensor.kind == StoredTensor::Kind::kSelectedRows;
  out.begin_object().member("name", tensor.name);
  out.member("kind", rows ? "selected_rows" : "dense").member("dtype", dtype_name(tensor.dtype));
  write_numbers(out, "shape", tensor.dims);
  if (rows) out.member("height", tensor.height);
  out.member("sharded", tensor.sharded);
  if (!tensor.lod.empty()) {
    out.key("lod").begin_array();
    for (const LodLevel& level : tensor.lod.levels()) {
      out.begin_array().inline_array();
      for (const int64_t offset : level) out.value(offset);
      out.end_array();
    }
    out.end_array();
  }
  out.key("chunks").begin_array();
  for (const StoredChunk& chunk : tensor.chunks) {
    out.begin_object();
    write_numbers(out, "offset", chunk.box.offset);
    write_numbers(out, "shape", chunk.box.shape);
    write_bytes(out, chunk.data);
    if (rows) {
      out.key("rows").begin_object();
      write_bytes(out, chunk.rows);
      out.end_object();
    }
    out.end_object();
  }
  out.end_array().end_object();
}

void write_files(JsonWriter& out, const Manifest& manifest) {
  out.key("files").begin_array();
  for (const StoredFile& file : manifest.files) {
    out.begin_object().member("name", file.name).member("size", file.size);
    out.member("xxh3_128", file.checksum.text()).end_object();
  }
  out.end_array();
}

void write_arrays(JsonWriter& out, const Manifest& manifest) {
  if (manifest.arrays.empty()) return;
  out.key("arrays").begin_array();
  for (const StoredArray& array : manifest.arrays) {
    out.begin_object().member("name", array.name);
    out.member("length", static_cast<uint64_t>(array.written.size()));
    out.key("missing").begin_array().inline_array();
    for (size_t i = 0; i < array.written.size(); ++i)
      if (!array.written[i]) out.value(static_cast<uint64_t>(i));
    out.end_array().end_object();
  }
  out.end_array();
}

}  // namespace

uint64_t StoredTensor::bytes() const {
  uint64_t sum = 0;
  for (const StoredChunk& chunk : chunks) sum += chunk.data.size() + chunk.rows.size();
  return sum;
}

const StoredTensor* Manifest::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &StoredTensor::name);
  return found == tensors.end() || found->name != name ? nullptr : &*found;
}

const StoredArray* Manifest::find_array(std::string_view name) const {
  const auto found = std::ranges::lower_bound(arrays, name, {}, &StoredArray::name);
  return found == arrays.end() || found->name != name ? nullptr : &*found;
}

bool Manifest::has(std::string_view name) const {
  return find(name) != nullptr || find_array(name) != nullptr;
}

std::vector<std::string> Manifest::value_names() const {
  std::set<std::string> names;
  for (const StoredTensor& tensor : tensors) names.insert(tensor.name);
  for (const StoredArray& array : arrays) {
    for (size_t i = 0; i < array.written.size(); ++i)
      names.erase(array_element_name(array.name, i));
  }
  for (const StoredArray& array : arrays) names.insert(array.name);
  return {names.begin(), names.end()};
}

const StoredRecord* Manifest::find_record(std::string_view name, int32_t rank) const {
  const auto found = std::ranges::find_if(records, [&](const StoredRecord& record) {
    return record.rank == rank && record.name == name;
  });
  return found == records.end() ? nullptr : &*found;
}

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.size;
  return sum;
}

std::string manifest_text(const Manifest& manifest) {
  JsonWriter out(1);
  out.begin_object();
  out.key("schema").begin_object().member("name", kManifestSchema);
  out.member("version", kManifestVersion).end_object();
  out.member("step", manifest.step);
  out.member("world_size", static_cast<int64_t>(manifest.world_size));
  out.member("block_bytes", manifest.block_bytes);
  out.key("user").begin_object();
  for (const auto& [name, text] : manifest.user) out.member(name, text);
  out.end_object();
  write_files(out, manifest);
  out.key("tensors").begin_array();
  for (const StoredTensor& tensor : manifest.tensors) write_tensor(out, tensor);
  out.end_array();
  write_arrays(out, manifest);
  out.key("records").begin_array();
  for (const StoredRecord& record : manifest.records) {
    out.begin_object().member("name", record.name);
    out.member("rank", static_cast<int64_t>(record.rank));
    write_bytes(out, record.data);
    out.end_object();
  }
  out.end_array();
  // Placeholder for the checksum, which covers the bytes before its member.
  std::string text = out.member(kChecksumMember, Checksum().text()).end_object().take();
  const size_t tail = checksum_tail(Checksum()).size();
  text.resize(text.size() - tail);
  const Checksum checksum = checksum_of(std::string_view(text));
  return text + checksum_tail(checksum);
}

Status check_entry_name(std::string_view name) {
  constexpr size_t kMaxBytes = 4096;
  if (name.empty()) return InvalidData("empty name");
  if (name.size() > kMaxBytes)
    return InvalidData("a name of {} bytes, above {}", name.size(), kMaxBytes);
  if (name.find('\0') != std::string_view::npos)
    return InvalidData("the name {} holds a NUL byte", in_quotes(name));
  std::string wide;
  std::ranges::copy_if(name, std::back_inserter(wide),
                       [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
  if (printable(wide) != wide)
    return InvalidData("the name {} is not valid UTF-8", in_quotes(name));
  return Ok();
}

Status check_file_name(std::string_view name) {
  MILLRACE_RETURN_IF_ERROR(check_entry_name(name));
  if (name.front() == '.' || name.find('/') != std::string_view::npos || name.size() > 255)
    return InvalidData("expected a file name in the folder of the manifest, found {}",
                       in_quotes(name));
  if (!name.ends_with(".safetensors"))
    return InvalidData("expected names of data files that end in .safetensors, found {}",
                       in_quotes(name));
  return Ok();
}

}  // namespace millrace::io
