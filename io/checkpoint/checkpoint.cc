#include "io/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/write_parts.h"
#include "io/normalize_bools.h"
#include "io/parallel_for.h"
#include "io/paths.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

constexpr size_t kReadPiece = size_t{256} << 10U;

// The folder inside `other` with the name of `folder`, if it exists; else `other` itself. For
// CheckpointLoadOptions::beside, which accepts both.
std::string folder_beside(const std::string& folder, const std::string& other) {
  std::error_code error;
  const auto name = std::filesystem::path(without_slash(folder)).filename();
  const auto inside = std::filesystem::path(without_slash(other)) / name;
  return std::filesystem::is_directory(inside, error) ? inside.string() : without_slash(other);
}

}  // namespace

StatusOr<std::string> Checkpoint::read_manifest(FileCalls& calls, const std::string& folder) {
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

Checkpoint Checkpoint::nothing_of(const std::string& folder, const CheckpointLoadOptions& options) {
  Checkpoint made;
  made.folder_ = without_slash(folder);
  made.options_ = options;
  made.options_.threads = threads_for_files(options.threads);
  if (options.calls == nullptr) made.options_.calls = system_file_calls();
  return made;
}

// Several folders may have different manifests, after an interrupted save that replaced a
// checkpoint; takes the newest.
Status Checkpoint::take_newest_manifest(const std::vector<std::string>& folders) {
  Status none;
  int64_t newest = 0;
  for (const std::string& folder : folders) {
    StatusOr<std::string> text = read_manifest(*options_.calls, folder);
    if (text.status().code() == StatusCode::kNotFound) {
      if (none.ok()) none = std::move(text).status();
      continue;
    }
    MILLRACE_RETURN_IF_ERROR(text.status());
    MILLRACE_ASSIGN_OR_RETURN(Manifest manifest,
                              parse_manifest(*text, folder + "/" + std::string(kManifestName)));
    if (age_of(manifest) <= newest) continue;
    newest = age_of(manifest);
    manifest_ = std::move(manifest);
  }
  return newest > 0 ? Ok() : none;
}

StatusOr<Checkpoint> Checkpoint::open(const std::string& folder,
                                      const CheckpointLoadOptions& options) {
  Checkpoint opened = nothing_of(folder, options);
  FileCalls& calls = *opened.options_.calls;
  std::vector<std::string> folders = {opened.folder_};
  for (const std::string& other : options.beside) folders.push_back(folder_beside(folder, other));
  MILLRACE_RETURN_IF_ERROR(opened.take_newest_manifest(folders));
  for (const StoredFile& file : opened.manifest_.files) {
    StatusOr<std::unique_ptr<ReadableFile>> there = calls.open(folders[0] + "/" + file.name);
    for (size_t i = 1; i < folders.size(); ++i) {
      if (there.status().code() == StatusCode::kNotFound)
        there = calls.open(folders[i] + "/" + file.name);
    }
    if (there.status().code() == StatusCode::kNotFound) {
      return NotFound("no such file{}", folders.size() == 1 ? "" : " in any of the folders")
          .in_file(folders[0] + "/" + file.name)
          .with_hint(
              "if the ranks saved to separate disks, they must load it together, or all of "
              "their folders must be given");
    }
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> readable, std::move(there));
    if (readable->size() != file.size) {
      return InvalidData("expected {} bytes, found {}", file.size, readable->size())
          .in_file(readable->path());
    }
    opened.files_.push_back(std::move(readable));
  }
  return opened;
}

StatusOr<const StoredTensor*> Checkpoint::find(std::string_view name) const {
  const StoredTensor* const tensor = manifest_.find(name);
  if (tensor != nullptr) return tensor;
  return no_such_tensor(manifest_, name).in_file(folder_);
}

Status Checkpoint::read_block(const StoredBytes& stored, uint64_t block, const std::string& owner,
                              std::span<std::byte> to) const {
  const auto index = static_cast<size_t>(stored.file);
  if (files_[index] == nullptr)
    return of_var(Internal("the file is on the disk of another rank"), owner)
        .in_file(folder_ + "/" + manifest_.files[index].name);
  const ReadableFile& file = *files_[index];
  const uint64_t begin = stored.begin + block * manifest_.block_bytes;
  // Hash the bytes while they are in the processor's cache.
  ChecksumStream stream;
  for (size_t at = 0; at < to.size(); at += kReadPiece) {
    const std::span<std::byte> piece = to.subspan(at, std::min(kReadPiece, to.size() - at));
    MILLRACE_RETURN_IF_ERROR(of_var(file.read(begin + at, piece), owner));
    stream.add(piece);
  }
  return compare_block(stored, block, stream.value(), manifest_.block_bytes, owner)
      .in_file(file.path());
}

// Reads a block directly to its destination if it is contiguous in the result, else through a
// temporary buffer.
Status Checkpoint::read_to_sink(const BlockRead& block) const {
  const WantedBytes& wanted = *block.wanted;
  const std::span<std::byte> place = wanted.sink->place(block.begin, block.end);
  if (!place.empty()) return read_block(*wanted.stored, block.index, *wanted.owner, place);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(block.size());
  const std::span<std::byte> bytes(memory.get(), block.size());
  MILLRACE_RETURN_IF_ERROR(read_block(*wanted.stored, block.index, *wanted.owner, bytes));
  wanted.sink->take(block.begin, bytes);
  return Ok();
}

Status Checkpoint::read_to_sinks(const std::vector<BlockRead>& blocks) const {
  // Read-ahead keeps the disk busy across the boundary between two files.
  constexpr size_t kAhead = 8;
  return parallel_for(options_.threads, blocks.size(), [&](size_t i) {
    if (i + kAhead < blocks.size()) {
      const BlockRead& later = blocks[i + kAhead];
      const auto& file = files_[static_cast<size_t>(later.wanted->stored->file)];
      if (file != nullptr) file->will_read(later.at(), later.size());
    }
    return read_to_sink(blocks[i]);
  });
}

Status Checkpoint::read(const std::vector<WantedBytes>& wanted) const {
  return read_to_sinks(blocks_of(wanted, manifest_.block_bytes));
}

Status Checkpoint::read_box(std::string_view name, const Box& box, std::span<std::byte> to) const {
  return read_boxes(BoxRead{name, box, to});
}

Status Checkpoint::read_boxes(llvm::ArrayRef<BoxRead> reads) const {
  std::vector<WantedBytes> wanted;
  for (const BoxRead& each : reads) {
    MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const tensor, find(each.name));
    if (Status status = check_inside(each.box, tensor->dims); !status.ok())
      return of_var(InvalidArgument("{}", status.message()), each.name).in_file(folder_);
    const int64_t bytes = each.box.numel() * dtype_size(tensor->dtype);
    if (each.to.size() != static_cast<size_t>(bytes)) {
      return of_var(InvalidArgument("memory of {} bytes does not fit the part {}", each.to.size(),
                                    each.box.text()),
                    each.name);
    }
    want_box(*tensor, each.box, each.to, wanted);
  }
  return read(wanted);
}

StatusOr<Tensor> Checkpoint::load_box(std::string_view name, const Box& box) const {
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  // Check before allocating memory of that size.
  if (Status status = check_inside(box, stored->dims); !status.ok())
    return of_var(InvalidArgument("{}", status.message()), name).in_file(folder_);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(stored->dtype, box.shape));
  MILLRACE_RETURN_IF_ERROR(
      read_box(name, box, {tensor.raw(), static_cast<size_t>(tensor.bytes())}));
  normalize_bools(tensor);
  return tensor;
}

StatusOr<Value> Checkpoint::load_array(const StoredArray& array) const {
  Value value;
  TensorArray& elements = value.as<TensorArray>();
  elements.resize(array.written.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!array.written[i]) continue;
    MILLRACE_ASSIGN_OR_RETURN(Value element, load(array_element_name(array.name, i)));
    elements[i] = std::move(element.as<Tensor>());
  }
  return value;
}

// NOLINTNEXTLINE(misc-no-recursion): elements of arrays are tensors
StatusOr<Value> Checkpoint::load(std::string_view name) const {
  if (const StoredArray* const array = manifest_.find_array(name)) return load_array(*array);
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
  std::vector<WantedBytes> wanted;
  want_row_numbers(*stored, rows, wanted);
  MILLRACE_RETURN_IF_ERROR(read(wanted));
  if (Status status = check_row_numbers(*stored, rows); !status.ok())
    return std::move(status).in_file(folder_);
  return rows;
}

StatusOr<SelectedRows> Checkpoint::load_rows(std::string_view name,
                                             const std::function<bool(int64_t)>& wanted) const {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, load_row_numbers(name));
  MILLRACE_ASSIGN_OR_RETURN(const StoredTensor* const stored, find(name));
  SelectedRows result;
  std::vector<WantedBytes> reads;
  MILLRACE_RETURN_IF_ERROR(want_chosen_rows(*stored, numbers, wanted, result, reads));
  MILLRACE_RETURN_IF_ERROR(read(reads));
  normalize_bools(result.value);
  return result;
}

StatusOr<std::string> Checkpoint::load_record(std::string_view name, int32_t rank) const {
  const StoredRecord* const record = manifest_.find_record(name, rank);
  if (record == nullptr)
    return NotFound("the checkpoint has no record '{}' of rank {}", name, rank).in_file(folder_);
  std::string bytes(record->data.size(), '\0');
  std::vector<WantedBytes> wanted;
  wanted.push_back(want_all(record->data, record->name,
                            std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  MILLRACE_RETURN_IF_ERROR(read(wanted));
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
  return verify_files([](size_t /*file*/) { return true; }, progress);
}

std::vector<Status> Checkpoint::verify_files(llvm::function_ref<bool(size_t)> which,
                                             const std::function<void(uint64_t)>& progress) const {
  std::vector<Status> of_files(files_.size());
  // The body never returns an error, so every file is checked.
  static_cast<void>(parallel_for(options_.threads, files_.size(), [&](size_t i) {
                      if (which(i)) of_files[i] = verify_file(i, progress);
                      return Ok();
                    }).ok());
  std::vector<Status> wrong;
  std::vector<bool> bad;
  for (Status& status : of_files) {
    bad.push_back(!status.ok());
    if (!status.ok()) wrong.push_back(std::move(status));
  }
  // Find the affected tensors through the checksums of their blocks.
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
