#include "io/checkpoint/reshard.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "framework/base/errors.h"
#include "framework/row_owner.h"
#include "io/checkpoint/box_stream.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/data_file.h"
#include "io/checkpoint/plan.h"
#include "io/checkpoint/write_parts.h"
#include "io/paths.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

// Streams the values of selected rows of a table, in increasing order of their stored positions.
class RowStream {
 public:
  RowStream(const Checkpoint& from, const StoredTensor& tensor, std::vector<int64_t> places,
            uint64_t max_bytes)
      : from_(from), tensor_(tensor), places_(std::move(places)) {
    Box row = Box::whole(tensor.dims);
    row.shape[0] = 1;
    row_bytes_ = static_cast<uint64_t>(row.numel() * dtype_size(tensor.dtype));
    group_ =
        static_cast<int64_t>(std::max<uint64_t>(1, max_bytes / std::max<uint64_t>(1, row_bytes_)));
  }

  Status read(uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const auto index = static_cast<size_t>(offset / row_bytes_);
      const uint64_t within = offset % row_bytes_;
      const int64_t place = places_[index];
      if (place < begin_ || place >= end_) MILLRACE_RETURN_IF_ERROR(fill(place));
      const size_t size = std::min<size_t>(to.size(), row_bytes_ - within);
      const size_t at = static_cast<size_t>(place - begin_) * row_bytes_ + within;
      std::memcpy(to.data(), buffer_.data() + at, size);
      to = to.subspan(size);
      offset += size;
    }
    if (offset == places_.size() * row_bytes_) std::vector<std::byte>().swap(buffer_);
    return Ok();
  }

 private:
  Status fill(int64_t place) {
    Box part = Box::whole(tensor_.dims);
    begin_ = place;
    end_ = std::min(place + group_, tensor_.dims[0]);
    part.offset[0] = begin_;
    part.shape[0] = end_ - begin_;
    buffer_.resize(static_cast<size_t>(end_ - begin_) * row_bytes_);
    return from_.read_box(tensor_.name, part, buffer_);
  }

  const Checkpoint& from_;
  const StoredTensor& tensor_;
  std::vector<int64_t> places_;
  uint64_t row_bytes_ = 0;
  int64_t group_ = 1;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<std::byte> buffer_;
};

// What one rank of the new layout writes.
struct RankItems {
  std::vector<DataItem> items;
  struct Purpose {
    size_t tensor;  // index in Manifest::tensors, or in Manifest::records
    Box box;
    bool rows = false;
    bool record = false;
  };
  std::vector<Purpose> purposes;
  uint64_t bytes = 0;
};

class Reshard {
 public:
  Reshard(const Checkpoint& from, const ReshardOptions& options)
      : from_(from), options_(options), ranks_(static_cast<size_t>(options.ranks)) {}

  Status run(const std::string& folder) {
    const std::shared_ptr<FileCalls> calls =
        options_.save.calls == nullptr ? system_file_calls() : options_.save.calls;
    CheckpointFolder target(*calls, folder, options_.save);
    MILLRACE_RETURN_IF_ERROR(target.prepare());
    Status status = write(*calls, target);
    if (status.ok()) status = target.commit(manifest_);
    if (!status.ok()) target.roll_back();
    return status;
  }

 private:
  [[nodiscard]] bool is_split(const StoredTensor& tensor) const {
    return options_.ranks > 1 && (tensor.sharded || options_.split_whole) && tensor.lod.empty() &&
           !tensor.dims.empty();
  }

  RankItems& least_loaded() { return *std::ranges::min_element(ranks_, {}, &RankItems::bytes); }

  void add(RankItems& rank, DataItem item, RankItems::Purpose purpose) {
    rank.bytes +=
        static_cast<uint64_t>(Box::whole(item.entry.dims).numel() * dtype_size(item.entry.dtype));
    rank.items.push_back(std::move(item));
    rank.purposes.push_back(std::move(purpose));
  }

  static std::string item_name(const std::string& name, const Box& box) {
    std::string text = name + "#";
    for (size_t i = 0; i < box.offset.size(); ++i)
      text += (i == 0 ? "" : "_") + std::to_string(box.offset[i]);
    return text;
  }

  void add_dense(const StoredTensor& tensor, size_t index, RankItems& rank, const Box& box) {
    if (box.numel() == 0) return;
    DataItem item;
    item.entry = {item_name(tensor.name, box), tensor.dtype, box.shape, 0, 0};
    const auto stream = std::make_shared<BoxStream>(from_, tensor, box, options_.max_memory_bytes);
    item.read = [stream](uint64_t offset, std::span<std::byte> to) {
      return stream->read(offset, to);
    };
    add(rank, std::move(item), {index, box});
  }

  // The stored positions of the rows that each rank gets.
  [[nodiscard]] std::vector<std::vector<int64_t>> share_rows(
      const StoredTensor& tensor, const std::vector<int64_t>& rows) const {
    const auto count = static_cast<int64_t>(is_split(tensor) ? ranks_.size() : 1);
    const auto size = static_cast<int64_t>(rows.size());
    std::vector<std::vector<int64_t>> places(static_cast<size_t>(count));
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t to = options_.rows_by_remainder ? server_of_row(rows[i], count)
                                                    : static_cast<int64_t>(i) * count / size;
      places[static_cast<size_t>(to)].push_back(static_cast<int64_t>(i));
    }
    return places;
  }

  Status add_rows(const StoredTensor& tensor, size_t index) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, from_.load_row_numbers(tensor.name));
    const std::vector<std::vector<int64_t>> places = share_rows(tensor, rows);
    int64_t at = 0;
    for (size_t to = 0; to < places.size(); ++to) {
      Box box = Box::whole(tensor.dims);
      box.offset[0] = std::exchange(at, at + static_cast<int64_t>(places[to].size()));
      box.shape[0] = static_cast<int64_t>(places[to].size());
      if (box.numel() == 0) continue;
      RankItems& rank = places.size() == 1 ? least_loaded() : ranks_[to];
      DataItem values;
      values.entry = {item_name(tensor.name, box), tensor.dtype, box.shape, 0, 0};
      const auto stream =
          std::make_shared<RowStream>(from_, tensor, places[to], options_.max_memory_bytes);
      values.read = [stream](uint64_t offset, std::span<std::byte> bytes) {
        return stream->read(offset, bytes);
      };
      DataItem numbers;
      numbers.entry = {values.entry.name + "#rows", DType::kInt64, {box.shape[0]}, 0, 0};
      std::vector<int64_t>& held = numbers_.emplace_back();
      for (const int64_t place : places[to]) held.push_back(rows[static_cast<size_t>(place)]);
      numbers.memory = std::as_bytes(std::span(held));
      add(rank, std::move(values), {index, box});
      add(rank, std::move(numbers), {index, box, true});
    }
    return Ok();
  }

  Status add_tensors() {
    const std::vector<StoredTensor>& tensors = from_.manifest().tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const StoredTensor& tensor = tensors[i];
      if (tensor.kind == Kind::kSelectedRows) {
        MILLRACE_RETURN_IF_ERROR(add_rows(tensor, i));
      } else if (!is_split(tensor)) {
        add_dense(tensor, i, least_loaded(), Box::whole(tensor.dims));
      } else {
        const auto rank = static_cast<int64_t>(tensor.dims.size());
        const int64_t axis = options_.axis < rank ? options_.axis : 0;
        for (int32_t part = 0; part < options_.ranks; ++part)
          add_dense(tensor, i, ranks_[static_cast<size_t>(part)],
                    even_part(tensor.dims, axis, part, options_.ranks));
      }
    }
    return Ok();
  }

  Status add_records() {
    const std::vector<StoredRecord>& records = from_.manifest().records;
    records_.reserve(records.size());  // views into it must stay valid
    for (size_t i = 0; i < records.size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(std::string bytes,
                                from_.load_record(records[i].name, records[i].rank));
      records_.push_back(std::move(bytes));
      DataItem item;
      item.entry = {fmt::format("{}#record{}", records[i].name, records[i].rank),
                    DType::kUint8,
                    {static_cast<int64_t>(records_.back().size())},
                    0,
                    0};
      item.memory = std::as_bytes(std::span(records_.back()));
      add(least_loaded(), std::move(item), {i, {}, false, true});
    }
    return Ok();
  }

  void place(const RankItems::Purpose& purpose, StoredBytes bytes, int32_t file) {
    bytes.file = file;
    if (purpose.record) {
      manifest_.records[purpose.tensor].data = std::move(bytes);
      return;
    }
    std::vector<StoredChunk>& chunks = manifest_.tensors[purpose.tensor].chunks;
    auto found = std::ranges::find(chunks, purpose.box, &StoredChunk::box);
    if (found == chunks.end()) found = chunks.insert(chunks.end(), {purpose.box, {}, {}});
    (purpose.rows ? found->rows : found->data) = std::move(bytes);
  }

  Status write(FileCalls& calls, CheckpointFolder& target) {
    manifest_ = from_.manifest();
    manifest_.files.clear();
    manifest_.world_size = options_.ranks;
    manifest_.block_bytes = options_.save.block_bytes;
    for (StoredTensor& tensor : manifest_.tensors) {
      tensor.chunks.clear();
      tensor.sharded = is_split(tensor);
    }
    MILLRACE_RETURN_IF_ERROR(add_tensors());
    MILLRACE_RETURN_IF_ERROR(add_records());
    // Sorted by file name, which is the order of the manifest.
    std::vector<std::pair<std::string, size_t>> names;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].items.empty()) continue;
      names.emplace_back(data_file_name(static_cast<int32_t>(rank), 0, target.generation()), rank);
    }
    std::ranges::sort(names);
    DataFileOptions options;
    options.block_bytes = options_.save.block_bytes;
    options.sync = options_.save.sync;
    options.progress = options_.save.progress;
    for (const auto& [name, rank] : names) {
      target.add_written(name);
      MILLRACE_ASSIGN_OR_RETURN(DataFile written,
                                write_data_file(calls, target.path_of(name), ranks_[rank].items,
                                                {{"format", "millrace"}}, options));
      const auto file = static_cast<int32_t>(manifest_.files.size());
      manifest_.files.push_back(written.file);
      for (size_t i = 0; i < written.items.size(); ++i)
        place(ranks_[rank].purposes[i], std::move(written.items[i]), file);
      ranks_[rank].items.clear();  // frees the buffers of its streams
    }
    for (StoredTensor& tensor : manifest_.tensors)
      std::sort(tensor.chunks.begin(), tensor.chunks.end(),
                [](const StoredChunk& a, const StoredChunk& b) { return a.box < b.box; });
    return Ok();
  }

  const Checkpoint& from_;
  const ReshardOptions& options_;
  std::vector<RankItems> ranks_;
  std::deque<std::vector<int64_t>> numbers_;  // views into these must stay valid
  std::vector<std::string> records_;
  Manifest manifest_;
};

}  // namespace

Status reshard_checkpoint(const Checkpoint& from, const std::string& folder,
                          const ReshardOptions& options) {
  if (options.ranks < 1) return InvalidArgument("{} ranks: expected at least 1", options.ranks);
  if (options.axis < 0) return InvalidArgument("axis {}: expected at least 0", options.axis);
  return Reshard(from, options).run(without_slash(folder));
}

}  // namespace millrace::io
