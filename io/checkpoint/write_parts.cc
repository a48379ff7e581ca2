#include "io/checkpoint/write_parts.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/tensor/layout.h"
#include "io/checkpoint/data_file.h"
#include "io/parallel_for.h"

namespace millrace::io {
namespace write_parts {
namespace {

using Kind = StoredTensor::Kind;

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

// Where the result for an item is stored.
struct Purpose {
  enum class Field { kData, kRows, kRecord };
  Field field;
  size_t index;  // index in WrittenParts::chunks or records
};

// Everything that one rank writes, in plan order.
struct Items {
  std::vector<DataItem> items;
  std::vector<Purpose> purposes;
  std::vector<Tensor> plain;  // row-major copies of tensors in a library's layout

  void add(std::string name, DType dtype, Dims dims, std::span<const std::byte> bytes,
           Purpose purpose) {
    DataItem item;
    item.entry.name = std::move(name);
    item.entry.dtype = dtype;
    item.entry.dims = std::move(dims);
    item.memory = bytes;
    items.push_back(std::move(item));
    purposes.push_back(purpose);
  }
};

Status add_chunk(const LocalTensor& local, const StoredTensor& tensor, const PlannedChunk& chunk,
                 WrittenParts& parts, Items& items) {
  const size_t index = parts.chunks.size() - 1;
  const auto* const rows = local.value->get_if<SelectedRows>();
  const Tensor* held = rows == nullptr ? local.value->get_if<Tensor>() : &rows->value;
  if (held->layout() != nullptr) {
    MILLRACE_RETURN_IF_ERROR(copy_plain(*held, items.plain.emplace_back()));
    held = &items.plain.back();
  }
  const auto name = fmt::format("{}#{}", tensor.name, fmt::join(chunk.box.offset, "_"));
  items.add(name, tensor.dtype, chunk.box.shape, bytes_of(*held), {Purpose::Field::kData, index});
  if (rows != nullptr) {
    items.add(name + "#rows", DType::kInt64, {chunk.box.shape[0]},
              std::as_bytes(std::span(rows->rows)), {Purpose::Field::kRows, index});
  } else if (!tensor.sharded) {
    parts.chunks[index].lod = held->lod();
  }
  return Ok();
}

StatusOr<Items> items_of(const LocalState& state, const SavePlan& plan, int32_t rank,
                         WrittenParts& parts) {
  Items items;
  items.plain.reserve(plan.chunks.size());  // views into these must stay valid
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const PlannedChunk& chunk = plan.chunks[i];
    if (chunk.owner != rank) continue;
    parts.chunks.push_back({i, {}, {}, {}});
    MILLRACE_RETURN_IF_ERROR(
        add_chunk(state.tensors[chunk.claim], plan.tensors[chunk.tensor], chunk, parts, items));
  }
  for (const LocalRecord& record : state.records) {
    parts.records.push_back({record.name, rank, {}});
    items.add(record.name + "#record", DType::kUint8, {static_cast<int64_t>(record.bytes.size())},
              std::as_bytes(std::span(record.bytes)),
              {Purpose::Field::kRecord, parts.records.size() - 1});
  }
  return items;
}

// Distributes the items over files, in order; an item is never split.
std::vector<std::vector<size_t>> split(const Items& items, uint64_t max_bytes) {
  std::vector<std::vector<size_t>> files;
  uint64_t used = 0;
  for (size_t i = 0; i < items.items.size(); ++i) {
    const uint64_t bytes = items.items[i].memory.size();
    if (files.empty() || (max_bytes != 0 && used != 0 && used + bytes > max_bytes)) {
      files.emplace_back();
      used = 0;
    }
    files.back().push_back(i);
    used += bytes;
  }
  return files;
}

void place(WrittenParts& parts, const Purpose& purpose, StoredBytes bytes) {
  switch (purpose.field) {
    case Purpose::Field::kData:
      parts.chunks[purpose.index].data = std::move(bytes);
      break;
    case Purpose::Field::kRows:
      parts.chunks[purpose.index].rows = std::move(bytes);
      break;
    case Purpose::Field::kRecord:
      parts.records[purpose.index].data = std::move(bytes);
      break;
  }
}

}  // namespace
}  // namespace write_parts

std::string data_file_name(int32_t rank, size_t part, int64_t generation) {
  if (generation == 0) return fmt::format("data-{}-{}.safetensors", rank, part);
  return fmt::format("data-{}-{}-{}.safetensors", rank, part, generation);
}

std::string temporary_manifest_name(int32_t rank) {
  return fmt::format("{}.{}", kTemporaryManifest, rank);
}

bool is_temporary_manifest(std::string_view name) {
  return name.starts_with(kTemporaryManifest);
}

std::optional<int64_t> generation_of(std::string_view name) {
  constexpr std::string_view kBegin = "data-";
  constexpr std::string_view kEnd = ".safetensors";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) ||
      name.size() < kBegin.size() + kEnd.size())
    return std::nullopt;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  std::vector<int64_t> numbers;
  while (numbers.size() < 3) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.begin(), name.end(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    numbers.push_back(number);
    if (end == name.end()) break;
    if (*end != '-' || numbers.size() == 3) return std::nullopt;
    name.remove_prefix(static_cast<size_t>(end - name.begin()) + 1);
  }
  if (numbers.size() == 2) return 0;
  return numbers.size() == 3 ? std::optional(numbers[2]) : std::nullopt;
}

int64_t age_of(const Manifest& manifest) {
  int64_t newest = 0;
  for (const StoredFile& file : manifest.files)
    newest = std::max(newest, generation_of(file.name).value_or(0));
  return newest + 1;
}

StatusOr<WrittenParts> WriteParts::write(const LocalState& state, const SavePlan& plan,
                                         int32_t rank, int64_t generation) {
  using namespace write_parts;
  WrittenParts parts;
  MILLRACE_ASSIGN_OR_RETURN(const Items items, items_of(state, plan, rank, parts));
  const std::vector<std::vector<size_t>> files = split(items, options_.max_file_bytes);
  for (size_t i = 0; i < files.size(); ++i) created_.push_back(data_file_name(rank, i, generation));
  std::vector<DataFile> written(files.size());
  DataFileOptions options;
  options.block_bytes = options_.block_bytes;
  options.sync = options_.sync;
  options.progress = options_.progress;
  const int threads = threads_for_files(options_.threads);
  options.hash_aside = static_cast<size_t>(threads) > files.size();
  MILLRACE_RETURN_IF_ERROR(parallel_for(threads, files.size(), [&](size_t i) -> Status {
    std::vector<DataItem> those;
    for (const size_t item : files[i]) those.push_back(items.items[item]);
    MILLRACE_ASSIGN_OR_RETURN(written[i],
                              write_data_file(calls_, folder_ + "/" + created_[i], those,
                                              {{"format", "millrace"}}, options));
    return Ok();
  }));
  for (size_t i = 0; i < files.size(); ++i) {
    parts.files.push_back(written[i].file);
    for (size_t k = 0; k < files[i].size(); ++k) {
      written[i].items[k].file = static_cast<int32_t>(i);
      place(parts, items.purposes[files[i][k]], std::move(written[i].items[k]));
    }
  }
  return parts;
}

StatusOr<Manifest> join_parts(const SavePlan& plan, const std::vector<WrittenParts>& ranks) {
  Manifest manifest;
  manifest.tensors = plan.tensors;
  manifest.arrays = plan.arrays;
  // Each file with the rank that wrote it and its index on that rank.
  std::vector<std::pair<StoredFile, std::pair<size_t, int32_t>>> files;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].files.size(); ++i)
      files.push_back({ranks[rank].files[i], {rank, static_cast<int32_t>(i)}});
  }
  std::ranges::sort(files, {},
                    [](const auto& file) -> const std::string& { return file.first.name; });
  std::vector<std::vector<int32_t>> index(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) index[rank].resize(ranks[rank].files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    index[files[i].second.first][static_cast<size_t>(files[i].second.second)] =
        static_cast<int32_t>(i);
    manifest.files.push_back(std::move(files[i].first));
  }
  std::vector<bool> there(plan.chunks.size());
  std::vector<StoredChunk> chunks(plan.chunks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto renumbered = [&](StoredBytes bytes) {
      if (bytes.size() != 0 || !bytes.blocks.empty() || bytes.file != 0 || !index[rank].empty())
        bytes.file = index[rank][static_cast<size_t>(bytes.file)];
      return bytes;
    };
    for (const WrittenParts::Chunk& part : ranks[rank].chunks) {
      const PlannedChunk& planned = plan.chunks[part.chunk];
      StoredTensor& tensor = manifest.tensors[planned.tensor];
      chunks[part.chunk] = {planned.box, renumbered(part.data), {}};
      if (tensor.kind == write_parts::Kind::kSelectedRows)
        chunks[part.chunk].rows = renumbered(part.rows);
      if (!part.lod.empty()) tensor.lod = part.lod;
      there[part.chunk] = true;
    }
    for (StoredRecord record : ranks[rank].records) {
      record.data = renumbered(std::move(record.data));
      manifest.records.push_back(std::move(record));
    }
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    StoredTensor& tensor = manifest.tensors[plan.chunks[i].tensor];
    if (!there[i]) return Internal("'{}': a part was not written", tensor.name);
    tensor.chunks.push_back(std::move(chunks[i]));
  }
  std::ranges::sort(manifest.records, [](const StoredRecord& a, const StoredRecord& b) {
    return std::tie(a.name, a.rank) < std::tie(b.name, b.rank);
  });
  return manifest;
}

}  // namespace millrace::io
