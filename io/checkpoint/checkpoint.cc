#include "io/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/normalize_bools.h"
#include "io/parallel_for.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

constexpr size_t kPiece = size_t{256} << 10U;

Status of_var(Status status, std::string_view name) {
  Location location = status.location();
  location.var = name;
  return std::move(status).at(std::move(location));
}

std::span<std::byte> memory(Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

StatusOr<std::string> read_manifest(FileCalls& calls, const std::string& folder) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30U;
  const std::string path = folder + "/" + std::string(kManifestName);
  StatusOr<std::unique_ptr<ReadableFile>> file = calls.open(path);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kNotFound) return std::move(file).status();
    return NotFound("no checkpoint: there is no {}, so it was never completed", kManifestName)
        .in_file(folder);
  }
  if ((*file)->size() > kMaxBytes) {
    return Status(StatusCode::kResource,
                  fmt::format("a manifest of {} bytes, above {}", (*file)->size(), kMaxBytes))
        .in_file(path);
  }
  std::string text((*file)->size(), '\0');
  MILLRACE_RETURN_IF_ERROR(
      (*file)->read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

StatusOr<Checkpoint> Checkpoint::open(const std::string& folder,
                                      const CheckpointLoadOptions& options) {
  Checkpoint opened;
  opened.folder_ = without_slash(folder);
  opened.options_ = options;
  constexpr unsigned kMostThreads = 4;
  if (options.threads <= 0) {
    opened.options_.threads =
        static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads));
  }
  if (options.calls == nullptr) opened.options_.calls = system_file_calls();
  FileCalls& calls = *opened.options_.calls;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_manifest(calls, opened.folder_));
  MILLRACE_ASSIGN_OR_RETURN(
      opened.manifest_, parse_manifest(text, opened.folder_ + "/" + std::string(kManifestName)));
  for (const StoredFile& file : opened.manifest_.files) {
    const std::string path = opened.folder_ + "/" + file.name;
    MILLRACE_ASSIGN_OR_RETURN(auto readable, calls.open(path));
    if (readable->size() != file.size) {
      return InvalidData("expected {} bytes, found {}", file.size, readable->size()).in_file(path);
    }
    opened.files_.push_back(std::move(readable));
  }
  return opened;
}

StatusOr<const StoredTensor*> Checkpoint::find(std::string_view name) const {
  const StoredTensor* const tensor = manifest_.find(name);
  if (tensor != nullptr) return tensor;
  std::vector<std::string_view> names;
  for (const StoredTensor& each : manifest_.tensors) names.push_back(each.name);
  Status status = of_var(NotFound("the checkpoint has no such tensor"), name).in_file(folder_);
  const std::string nearest = nearest_name(name, names);
  return nearest.empty() ? status
                         : std::move(status).with_hint(fmt::format("did you mean '{}'?", nearest));
}

Status Checkpoint::read_block(const StoredBytes& stored, uint64_t block, const std::string& owner,
                              std::span<std::byte> to) const {
  const ReadableFile& file = *files_[static_cast<size_t>(stored.file)];
  const uint64_t begin = stored.begin + block * manifest_.block_bytes;
  // Bytes are hashed while they are in the processor's cache.
  ChecksumStream stream;
  for (size_t at = 0; at < to.size(); at += kPiece) {
    const std::span<std::byte> piece = to.subspan(at, std::min(kPiece, to.size() - at));
    MILLRACE_RETURN_IF_ERROR(of_var(file.read(begin + at, piece), owner));
    stream.add(piece);
  }
  const Checksum found = stream.value();
  const Checksum expected = stored.blocks[block];
  if (found == expected) return Ok();
  return of_var(InvalidData("the bytes from {} on are not what was saved: expected checksum {}, "
                            "found {}",
                            begin, expected.text(), found.text()),
                owner)
      .in_file(file.path());
}

Status Checkpoint::read_stored(const StoredBytes& stored, const std::string& owner,
                               std::span<std::byte> to) const {
  return parallel_for(options_.threads, stored.blocks.size(), [&](size_t block) {
    const uint64_t begin = block * manifest_.block_bytes;
    const uint64_t size = std::min(manifest_.block_bytes, stored.size() - begin);
    return read_block(stored, block, owner, to.subspan(begin, size));
  });
}

// What a box and a chunk share.
struct Checkpoint::ChunkRead {
  const StoredTensor* tensor;
  const StoredChunk* chunk;
  Runs runs;
  std::span<std::byte> to;  // of the box
  size_t first_block;       // of all chunks together
};

// One block of a chunk. If everything of it lies in one piece in the result it is read into its
// place, else through memory of its own.
Status Checkpoint::read_block_of(const ChunkRead& read, size_t block) const {
  const StoredBytes& data = read.chunk->data;
  const Runs& runs = read.runs;
  const std::string& name = read.tensor->name;
  const auto run_bytes = runs.bytes();
  const auto begin = static_cast<int64_t>(block * manifest_.block_bytes);
  const auto end = std::min(begin + static_cast<int64_t>(manifest_.block_bytes),
                            static_cast<int64_t>(data.size()));
  int64_t run = runs.first_behind(begin);
  if (run == runs.count() || runs.from(run) >= end) return Ok();
  if (runs.from(run) <= begin && runs.from(run) + run_bytes >= end) {
    const auto at = static_cast<size_t>(runs.to(run) + begin - runs.from(run));
    return read_block(data, block, name, read.to.subspan(at, static_cast<size_t>(end - begin)));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
  MILLRACE_RETURN_IF_ERROR(read_block(data, block, name, bytes));
  for (; run < runs.count() && runs.from(run) < end; ++run) {
    const int64_t from = std::max(runs.from(run), begin);
    const int64_t size = std::min(runs.from(run) + run_bytes, end) - from;
    std::memcpy(read.to.data() + runs.to(run) + (from - runs.from(run)),
                bytes.data() + (from - begin), static_cast<size_t>(size));
  }
  return Ok();
}

Status Checkpoint::read_box(std::string_view name, const Box& box, std::span<std::byte> to) const {
  return read_boxes(BoxRead{name, box, to});
}

Status Checkpoint::read_boxes(llvm::ArrayRef<BoxRead> reads) const {
  std::vector<ChunkRead> chunks;
  size_t blocks = 0;
  for (const BoxRead& read : reads) {
    MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const tensor, find(read.name));
    if (Status status = check_inside(read.box, tensor->dims); !status.ok())
      return of_var(InvalidArgument("{}", status.message()), read.name).in_file(folder_);
    const int64_t element = dtype_size(tensor->dtype);
    if (read.to.size() != static_cast<size_t>(read.box.numel() * element)) {
      return of_var(
          InvalidArgument("memory of {} bytes for the part {}", read.to.size(), read.box.text()),
          read.name);
    }
    for (const StoredChunk& chunk : tensor->chunks) {
      if (!overlap(chunk.box, read.box)) continue;
      chunks.push_back({tensor, &chunk, Runs(chunk.box, read.box, element), read.to, blocks});
      blocks += chunk.data.blocks.size();
    }
  }
  return parallel_for(options_.threads, blocks, [&](size_t block) {
    const auto chunk =
        std::prev(std::ranges::upper_bound(chunks, block, {}, &ChunkRead::first_block));
    return read_block_of(*chunk, block - chunk->first_block);
  });
}

StatusOr<Tensor> Checkpoint::load_box(std::string_view name, const Box& box) const {
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  // Before memory of that size is asked for.
  if (Status status = check_inside(box, stored->dims); !status.ok())
    return of_var(InvalidArgument("{}", status.message()), name).in_file(folder_);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(stored->dtype, box.shape));
  MILLRACE_RETURN_IF_ERROR(read_box(name, box, memory(tensor)));
  normalize_bools(tensor);
  return tensor;
}

StatusOr<Value> Checkpoint::load(std::string_view name) const {
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  Value value;
  if (stored->kind == Kind::kSelectedRows) {
    MILLRACE_ASSIGN_OR_RETURN(value.as<SelectedRows>(), load_rows(name, {}));
    return value;
  }
  MILLRACE_ASSIGN_OR_RETURN(value.as<Tensor>(), load_box(name, Box::whole(stored->dims)));
  value.as<Tensor>().set_lod(stored->lod);
  return value;
}

StatusOr<std::vector<int64_t>> Checkpoint::load_row_numbers(std::string_view name) const {
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  if (stored->kind != Kind::kSelectedRows) {
    return of_var(InvalidArgument("expected selected rows, found a dense tensor"), name)
        .in_file(folder_);
  }
  std::vector<int64_t> rows(static_cast<size_t>(stored->dims[0]));
  for (const StoredChunk& chunk : stored->chunks) {
    const auto part = std::span(rows).subspan(static_cast<size_t>(chunk.box.offset[0]),
                                              static_cast<size_t>(chunk.box.shape[0]));
    MILLRACE_RETURN_IF_ERROR(read_stored(chunk.rows, stored->name, std::as_writable_bytes(part)));
  }
  for (const int64_t row : rows) {
    if (row >= 0 && (stored->height <= 0 || row < stored->height)) continue;
    return of_var(InvalidData("row {}: expected 0 to {}", row, stored->height - 1), name)
        .in_file(folder_);
  }
  return rows;
}

// Rows that are wanted may lie anywhere, so whole groups of neighbours are read, each block of the
// files about once.
StatusOr<SelectedRows> Checkpoint::load_rows(std::string_view name,
                                             const std::function<bool(int64_t)>& wanted) const {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, load_row_numbers(name));
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  SelectedRows result;
  result.height = stored->height;
  for (const int64_t row : numbers)
    if (!wanted || wanted(row)) result.rows.push_back(row);
  Dims dims = stored->dims;
  dims[0] = static_cast<int64_t>(result.rows.size());
  MILLRACE_ASSIGN_OR_RETURN(result.value, Tensor::create(stored->dtype, dims));
  Box box = Box::whole(stored->dims);
  if (result.rows.size() == numbers.size()) {
    if (result.value.bytes() > 0)
      MILLRACE_RETURN_IF_ERROR(read_box(name, box, memory(result.value)));
    normalize_bools(result.value);
    return result;
  }
  constexpr uint64_t kGroupBlocks = 8;
  dims[0] = 1;
  const auto row_bytes = static_cast<size_t>(Box::whole(dims).numel() * dtype_size(stored->dtype));
  const size_t group =
      std::max<size_t>(1, kGroupBlocks * manifest_.block_bytes / std::max<size_t>(row_bytes, 1));
  std::vector<std::byte> bytes;
  std::byte* to = result.value.raw();
  for (size_t begin = 0; begin < numbers.size(); begin += group) {
    const size_t end = std::min(begin + group, numbers.size());
    const auto is_wanted = [&](size_t i) { return wanted(numbers[i]); };
    size_t first = begin;
    while (first < end && !is_wanted(first)) ++first;
    if (first == end) continue;
    box.offset[0] = static_cast<int64_t>(first);
    box.shape[0] = static_cast<int64_t>(end - first);
    bytes.resize((end - first) * row_bytes);
    MILLRACE_RETURN_IF_ERROR(read_box(name, box, bytes));
    for (size_t i = first; i < end; ++i) {
      if (!is_wanted(i) || row_bytes == 0) continue;
      std::memcpy(to, bytes.data() + (i - first) * row_bytes, row_bytes);
      to += row_bytes;
    }
  }
  normalize_bools(result.value);
  return result;
}

StatusOr<std::string> Checkpoint::load_record(std::string_view name, int32_t rank) const {
  const StoredRecord* const record = manifest_.find_record(name, rank);
  if (record == nullptr)
    return NotFound("the checkpoint has no record '{}' of rank {}", name, rank).in_file(folder_);
  std::string bytes(record->data.size(), '\0');
  MILLRACE_RETURN_IF_ERROR(read_stored(
      record->data, record->name, std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  return bytes;
}

Status Checkpoint::verify_file(size_t index, const std::function<void(uint64_t)>& progress) const {
  const ReadableFile& file = *files_[index];
  ChecksumStream stream;
  std::vector<std::byte> bytes(
      std::min<uint64_t>(std::max<uint64_t>(manifest_.block_bytes, 1), file.size()));
  for (uint64_t at = 0; at < file.size(); at += bytes.size()) {
    const std::span<std::byte> piece =
        std::span(bytes).first(std::min<uint64_t>(bytes.size(), file.size() - at));
    MILLRACE_RETURN_IF_ERROR(file.read(at, piece));
    stream.add(piece);
    if (progress) progress(piece.size());
  }
  const Checksum expected = manifest_.files[index].checksum;
  const Checksum found = stream.value();
  if (found == expected) return Ok();
  return InvalidData("expected checksum {}, found {}", expected.text(), found.text())
      .in_file(file.path());
}

std::vector<Status> Checkpoint::verify(const std::function<void(uint64_t)>& progress) const {
  std::vector<Status> of_files(files_.size());
  // The body never fails: every file is looked at.
  static_cast<void>(parallel_for(options_.threads, files_.size(), [&](size_t i) {
                      of_files[i] = verify_file(i, progress);
                      return Ok();
                    }).ok());
  std::vector<Status> wrong;
  std::vector<bool> bad;
  for (Status& status : of_files) {
    bad.push_back(!status.ok());
    if (!status.ok()) wrong.push_back(std::move(status));
  }
  // Which tensors: their own blocks say so.
  const auto look = [&](const StoredBytes& stored, const std::string& owner) {
    if (stored.blocks.empty() || !bad[static_cast<size_t>(stored.file)]) return;
    std::vector<std::byte> block;
    for (uint64_t i = 0; i < stored.blocks.size(); ++i) {
      const uint64_t begin = i * manifest_.block_bytes;
      block.resize(std::min(manifest_.block_bytes, stored.size() - begin));
      if (Status status = read_block(stored, i, owner, block); !status.ok())
        wrong.push_back(std::move(status));
    }
  };
  for (const StoredTensor& tensor : manifest_.tensors) {
    for (const StoredChunk& chunk : tensor.chunks) {
      look(chunk.data, tensor.name);
      look(chunk.rows, tensor.name);
    }
  }
  for (const StoredRecord& record : manifest_.records) look(record.data, record.name);
  return wrong;
}

}  // namespace millrace::io
