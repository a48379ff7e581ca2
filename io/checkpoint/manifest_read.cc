#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/manifest_form.h"
#include "io/json.h"

namespace millrace::io {
namespace manifest_read {
namespace {

constexpr size_t kManifestReadMaxRank = 16;
constexpr int64_t kMaxRanks = int64_t{1} << 30U;
constexpr size_t kMaxUserBytes = size_t{1} << 20U;
constexpr int64_t kMaxBlockBytes = int64_t{1} << 30U;

Status missing(const char* name, const char* what, const JsonValue* found) {
  return InvalidData("member '{}': expected {}, found {}", name, what,
                     found == nullptr ? "none" : found->kind());
}

StatusOr<int64_t> count(const JsonValue& object, const char* name) {
  const JsonValue* const value = object.find(name);
  const auto number = value == nullptr ? std::nullopt : value->count();
  if (!number) return missing(name, "a non-negative integer", value);
  return *number;
}

StatusOr<std::string> read_text(const JsonValue& object, const char* name) {
  const auto* const string = object.find_as<std::string>(name);
  if (string == nullptr) return missing(name, "a string", object.find(name));
  return *string;
}

StatusOr<const JsonItems*> read_list(const JsonValue& object, const char* name) {
  const auto* const items = object.find_as<JsonItems>(name);
  if (items == nullptr) return missing(name, "a list", object.find(name));
  return items;
}

StatusOr<Dims> numbers(const JsonValue& object, const char* name) {
  const JsonValue* const value = object.find(name);
  const auto found = value == nullptr ? std::nullopt : value->counts();
  if (!found || found->size() > kManifestReadMaxRank)
    return missing(name, "a list of at most 16 non-negative integers", value);
  return Dims(found->begin(), found->end());
}

StatusOr<Checksum> checksum(const std::string& digits) {
  const auto parsed = Checksum::parse(digits);
  if (!parsed) return InvalidData("expected a checksum of 32 digits, found {}", in_quotes(digits));
  return *parsed;
}

Status of_tensor(Status status, const std::string& name) {
  Location location = status.location();
  location.var = name;
  return std::move(status).at(std::move(location));
}

class ManifestReadReader {
 public:
  StatusOr<Manifest> read(const JsonValue& root);

 private:
  Status read_head(const JsonValue& root);
  Status read_user(const JsonValue& root);
  Status read_files(const JsonValue& root);
  StatusOr<StoredBytes> read_bytes(const JsonValue& object, const std::string& owner);
  StatusOr<StoredChunk> read_chunk(const JsonValue& object, const StoredTensor& tensor);
  Status read_lod(const JsonValue& object, StoredTensor& tensor);
  Status read_facts(const JsonValue& object, StoredTensor& tensor);
  Status read_chunks(const JsonValue& object, StoredTensor& tensor);
  Status read_tensors(const JsonValue& root);
  Status read_array(const JsonValue& object, StoredArray& array);
  Status read_arrays(const JsonValue& root);
  Status read_records(const JsonValue& root);
  Status check_ranges();

  struct Range {
    int32_t file;
    uint64_t begin;
    uint64_t end;
    std::string owner;
  };
  Manifest manifest_;
  std::vector<Range> ranges_;
};

Status ManifestReadReader::read_head(const JsonValue& root) {
  const JsonValue* const schema = root.find("schema");
  if (schema == nullptr) return missing("schema", "an object", schema);
  MILLRACE_ASSIGN_OR_RETURN(const std::string name, read_text(*schema, "name"));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t version, count(*schema, "version"));
  if (name != kManifestSchema)
    return InvalidData("expected schema {}, found {}", kManifestSchema, in_quotes(name));
  if (version != kManifestVersion)
    return Unimplemented("manifest of version {}: this build reads {}", version, kManifestVersion);
  MILLRACE_ASSIGN_OR_RETURN(manifest_.step, count(root, "step"));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t world, count(root, "world_size"));
  if (world < 1 || world > kMaxRanks)
    return InvalidData("member 'world_size': expected at least 1, found {}", world);
  manifest_.world_size = static_cast<int32_t>(world);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t block, count(root, "block_bytes"));
  if (block < 1 || block > kMaxBlockBytes)
    return InvalidData("member 'block_bytes': expected 1 to {}, found {}", kMaxBlockBytes, block);
  manifest_.block_bytes = static_cast<uint64_t>(block);
  return Ok();
}

Status ManifestReadReader::read_user(const JsonValue& root) {
  const JsonValue* const user = root.find("user");
  const auto* const members = user == nullptr ? nullptr : user->get_if<JsonMembers>();
  if (members == nullptr) return missing("user", "an object", user);
  size_t bytes = 0;
  for (const auto& [name, value] : *members) {
    const auto* const string = value.get_if<std::string>();
    if (string == nullptr) return missing(name.c_str(), "a string", &value);
    bytes += name.size() + string->size();
    if (bytes > kMaxUserBytes)
      return InvalidData("member 'user': more than {} bytes", kMaxUserBytes);
    manifest_.user.emplace(name, *string);
  }
  return Ok();
}

Status ManifestReadReader::read_files(const JsonValue& root) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const items, read_list(root, "files"));
  for (const JsonValue& item : *items) {
    StoredFile file;
    MILLRACE_ASSIGN_OR_RETURN(file.name, read_text(item, "name"));
    MILLRACE_RETURN_IF_ERROR(check_file_name(file.name));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t size, count(item, "size"));
    file.size = static_cast<uint64_t>(size);
    MILLRACE_ASSIGN_OR_RETURN(const std::string digits, read_text(item, "xxh3_128"));
    MILLRACE_ASSIGN_OR_RETURN(file.checksum, checksum(digits));
    if (!manifest_.files.empty() && manifest_.files.back().name >= file.name)
      return InvalidData("member 'files': expected names in order, found {}", in_quotes(file.name));
    manifest_.files.push_back(std::move(file));
  }
  return Ok();
}

StatusOr<StoredBytes> ManifestReadReader::read_bytes(const JsonValue& object,
                                                     const std::string& owner) {
  StoredBytes bytes;
  MILLRACE_ASSIGN_OR_RETURN(const int64_t file, count(object, "file"));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t begin, count(object, "begin"));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t end, count(object, "end"));
  if (file >= static_cast<int64_t>(manifest_.files.size()))
    return InvalidData("file {}: there are {}", file, manifest_.files.size());
  bytes.file = static_cast<int32_t>(file);
  bytes.begin = static_cast<uint64_t>(begin);
  bytes.end = static_cast<uint64_t>(end);
  const StoredFile& stored = manifest_.files[static_cast<size_t>(file)];
  if (begin > end || bytes.end > stored.size) {
    return InvalidData("range [{}, {}]: expected one within the {} bytes of '{}'", begin, end,
                       stored.size, stored.name);
  }
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const items, read_list(object, "blocks"));
  const uint64_t wanted = (bytes.size() + manifest_.block_bytes - 1) / manifest_.block_bytes;
  if (items->size() != wanted)
    return InvalidData("range [{}, {}]: expected {} checksums, found {}", begin, end, wanted,
                       items->size());
  for (const JsonValue& item : *items) {
    const auto* const digits = item.get_if<std::string>();
    if (digits == nullptr) return missing("blocks", "strings", &item);
    MILLRACE_ASSIGN_OR_RETURN(const Checksum block, checksum(*digits));
    bytes.blocks.push_back(block);
  }
  if (begin < end) ranges_.push_back({bytes.file, bytes.begin, bytes.end, owner});
  return bytes;
}

StatusOr<StoredChunk> ManifestReadReader::read_chunk(const JsonValue& object,
                                                     const StoredTensor& tensor) {
  StoredChunk chunk;
  MILLRACE_ASSIGN_OR_RETURN(chunk.box.offset, numbers(object, "offset"));
  MILLRACE_ASSIGN_OR_RETURN(chunk.box.shape, numbers(object, "shape"));
  MILLRACE_RETURN_IF_ERROR(check_inside(chunk.box, tensor.dims));
  MILLRACE_ASSIGN_OR_RETURN(chunk.data, read_bytes(object, tensor.name));
  const auto bytes = static_cast<uint64_t>(chunk.box.numel() * dtype_size(tensor.dtype));
  if (bytes != chunk.data.size()) {
    return InvalidData("part {}: expected {} bytes, found the range [{}, {}]", chunk.box.text(),
                       bytes, chunk.data.begin, chunk.data.end);
  }
  if (tensor.kind == StoredTensor::Kind::kDense) return chunk;
  const JsonValue* const rows = object.find("rows");
  if (rows == nullptr) return missing("rows", "an object", rows);
  MILLRACE_ASSIGN_OR_RETURN(chunk.rows, read_bytes(*rows, tensor.name));
  const bool whole_rows = std::equal(chunk.box.shape.begin() + 1, chunk.box.shape.end(),
                                     tensor.dims.begin() + 1, tensor.dims.end());
  if (!whole_rows || chunk.rows.size() != static_cast<uint64_t>(chunk.box.shape[0]) * 8)
    return InvalidData("part {}: expected whole rows and a number for each", chunk.box.text());
  return chunk;
}

Status ManifestReadReader::read_lod(const JsonValue& object, StoredTensor& tensor) {
  const JsonValue* const lod = object.find("lod");
  if (lod == nullptr) return Ok();
  const auto* const levels = lod->get_if<JsonItems>();
  if (levels == nullptr) return missing("lod", "a list", lod);
  std::vector<LodLevel> offsets;
  for (const JsonValue& level : *levels) {
    auto numbers = level.counts();
    if (!numbers) return missing("lod", "lists of non-negative integers", &level);
    offsets.push_back(*std::move(numbers));
  }
  tensor.lod = Lod(std::move(offsets));
  return tensor.lod.check(tensor.dims.empty() ? 0 : tensor.dims[0]);
}

Status ManifestReadReader::read_facts(const JsonValue& object, StoredTensor& tensor) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string kind, read_text(object, "kind"));
  if (kind != "dense" && kind != "selected_rows")
    return Unimplemented("kind {}: this build knows dense and selected_rows", in_quotes(kind));
  if (kind != "dense") tensor.kind = StoredTensor::Kind::kSelectedRows;
  MILLRACE_ASSIGN_OR_RETURN(const std::string dtype, read_text(object, "dtype"));
  const auto known = parse_dtype(dtype);
  if (!known) return InvalidData("dtype {} is not an element type", in_quotes(dtype));
  tensor.dtype = *known;
  MILLRACE_ASSIGN_OR_RETURN(tensor.dims, numbers(object, "shape"));
  int64_t bytes = dtype_size(tensor.dtype);
  for (const int64_t dim : tensor.dims)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes))
      return InvalidData("shape: more than 2^63 bytes");
  const JsonValue* const sharded = object.find("sharded");
  if (sharded == nullptr || sharded->get_if<bool>() == nullptr)
    return missing("sharded", "a boolean", sharded);
  tensor.sharded = *sharded->get_if<bool>();
  if (tensor.kind == StoredTensor::Kind::kDense) return read_lod(object, tensor);
  MILLRACE_ASSIGN_OR_RETURN(tensor.height, count(object, "height"));
  if (tensor.dims.empty())
    return InvalidData("shape: expected at least one axis for selected rows, found none");
  return Ok();
}

Status ManifestReadReader::read_chunks(const JsonValue& object, StoredTensor& tensor) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const chunks, read_list(object, "chunks"));
  std::vector<Box> boxes;
  for (const JsonValue& item : *chunks) {
    MILLRACE_ASSIGN_OR_RETURN(StoredChunk chunk, read_chunk(item, tensor));
    boxes.push_back(chunk.box);
    tensor.chunks.push_back(std::move(chunk));
  }
  return check_exact_cover(std::move(boxes), tensor.dims);
}

Status ManifestReadReader::read_tensors(const JsonValue& root) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const items, read_list(root, "tensors"));
  for (const JsonValue& item : *items) {
    StoredTensor tensor;
    MILLRACE_ASSIGN_OR_RETURN(tensor.name, read_text(item, "name"));
    MILLRACE_RETURN_IF_ERROR(check_entry_name(tensor.name));
    Status status = read_facts(item, tensor);
    if (status.ok()) status = read_chunks(item, tensor);
    if (!status.ok()) return of_tensor(std::move(status), tensor.name);
    if (!manifest_.tensors.empty() && manifest_.tensors.back().name >= tensor.name)
      return of_tensor(InvalidData("expected names in order, each once"), tensor.name);
    manifest_.tensors.push_back(std::move(tensor));
  }
  return Ok();
}

// Each element must exist as a tensor or be in the list of missing elements, so that a length
// cannot be much larger than the file.
Status ManifestReadReader::read_array(const JsonValue& object, StoredArray& array) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t length, count(object, "length"));
  const JsonValue* const missing_member = object.find("missing");
  const auto gaps = missing_member == nullptr ? std::nullopt : missing_member->counts();
  if (!gaps) return missing("missing", "a list of non-negative integers", missing_member);
  const auto known = static_cast<int64_t>(manifest_.tensors.size() + gaps->size());
  if (length > known)
    return InvalidData("array length {}: the manifest lists at most {} elements", length, known);
  array.written.assign(static_cast<size_t>(length), true);
  for (const int64_t gap : *gaps) {
    if (gap >= length || !array.written[static_cast<size_t>(gap)]) {
      return InvalidData("missing element {}: expected each once, below the length {}", gap,
                         length);
    }
    array.written[static_cast<size_t>(gap)] = false;
  }
  for (size_t i = 0; i < array.written.size(); ++i) {
    if (!array.written[i]) continue;
    const StoredTensor* const element = manifest_.find(array_element_name(array.name, i));
    if (element == nullptr || element->kind != StoredTensor::Kind::kDense)
      return InvalidData("element {} of {}: expected a dense tensor, found none", i, length);
  }
  return Ok();
}

Status ManifestReadReader::read_arrays(const JsonValue& root) {
  if (root.find("arrays") == nullptr) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const items, read_list(root, "arrays"));
  for (const JsonValue& item : *items) {
    StoredArray array;
    MILLRACE_ASSIGN_OR_RETURN(array.name, read_text(item, "name"));
    MILLRACE_RETURN_IF_ERROR(check_entry_name(array.name));
    Status status = read_array(item, array);
    if (status.ok() && manifest_.find(array.name) != nullptr)
      status = InvalidData("a tensor and an array have the same name");
    if (status.ok() && !manifest_.arrays.empty() && manifest_.arrays.back().name >= array.name)
      status = InvalidData("expected names in order, each once");
    if (!status.ok()) return of_tensor(std::move(status), array.name);
    manifest_.arrays.push_back(std::move(array));
  }
  return Ok();
}

Status ManifestReadReader::read_records(const JsonValue& root) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const items, read_list(root, "records"));
  const auto key = [](const StoredRecord& record) {
    return std::pair<const std::string&, int32_t>(record.name, record.rank);
  };
  for (const JsonValue& item : *items) {
    StoredRecord record;
    MILLRACE_ASSIGN_OR_RETURN(record.name, read_text(item, "name"));
    MILLRACE_RETURN_IF_ERROR(check_entry_name(record.name));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t rank, count(item, "rank"));
    // The rank may be >= world_size: a checkpoint that was resharded keeps the records as they
    // were.
    if (rank >= kMaxRanks)
      return InvalidData("record '{}': rank {}, above {}", record.name, rank, kMaxRanks - 1);
    record.rank = static_cast<int32_t>(rank);
    StatusOr<StoredBytes> data = read_bytes(item, record.name);
    if (!data.ok()) return of_tensor(std::move(data).status(), record.name);
    record.data = *std::move(data);
    if (!manifest_.records.empty() && !(key(manifest_.records.back()) < key(record)))
      return of_tensor(InvalidData("expected records in order, each once"), record.name);
    manifest_.records.push_back(std::move(record));
  }
  return Ok();
}

// Checks that no byte belongs to two tensors.
Status ManifestReadReader::check_ranges() {
  std::ranges::sort(ranges_, {}, [](const Range& r) { return std::tuple(r.file, r.begin, r.end); });
  for (size_t i = 1; i < ranges_.size(); ++i) {
    const Range& left = ranges_[i - 1];
    const Range& right = ranges_[i];
    if (left.file != right.file || left.end <= right.begin) continue;
    return of_tensor(InvalidData("range [{}, {}] overlaps that of '{}', [{}, {}]", right.begin,
                                 right.end, left.owner, left.begin, left.end),
                     right.owner);
  }
  return Ok();
}

StatusOr<Manifest> ManifestReadReader::read(const JsonValue& root) {
  MILLRACE_RETURN_IF_ERROR(read_head(root));
  MILLRACE_RETURN_IF_ERROR(read_user(root));
  MILLRACE_RETURN_IF_ERROR(read_files(root));
  MILLRACE_RETURN_IF_ERROR(read_tensors(root));
  MILLRACE_RETURN_IF_ERROR(read_arrays(root));
  MILLRACE_RETURN_IF_ERROR(read_records(root));
  MILLRACE_RETURN_IF_ERROR(check_ranges());
  return std::move(manifest_);
}

// Checks the checksum at the end of the file against the bytes before it.
Status check_tail(std::string_view bytes) {
  const size_t tail = checksum_tail(Checksum()).size();
  if (bytes.size() < tail) return InvalidData("the manifest is cut off or corrupt");
  const std::string_view body = bytes.substr(0, bytes.size() - tail);
  const Checksum found = checksum_of(body);
  if (bytes.substr(body.size()) == checksum_tail(found)) return Ok();
  return InvalidData("the manifest is cut off or corrupt: its checksum is {}, found at its end: {}",
                     found.text(), in_quotes(bytes.substr(body.size())));
}

StatusOr<Manifest> parse(std::string_view bytes) {
  MILLRACE_RETURN_IF_ERROR(check_tail(bytes));
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue root, parse_json(bytes, {.max_depth = 12}));
  if (root.get_if<JsonMembers>() == nullptr)
    return InvalidData("expected an object, found {}", root.kind());
  return ManifestReadReader().read(root);
}

}  // namespace
}  // namespace manifest_read

std::string checksum_tail(const Checksum& checksum) {
  return fmt::format(",\n \"{}\": \"{}\"\n}}\n", kChecksumMember, checksum.text());
}

StatusOr<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  StatusOr<Manifest> manifest = manifest_read::parse(text);
  if (manifest.ok() || !manifest.status().location().file.empty()) return manifest;
  return std::move(manifest).status().in_file(path);
}

}  // namespace millrace::io
