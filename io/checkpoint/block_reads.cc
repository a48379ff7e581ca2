#include "io/checkpoint/block_reads.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/base/text.h"

namespace millrace::io {
namespace {

class WholeSink final : public BlockSink {
 public:
  explicit WholeSink(std::span<std::byte> to) : to_(to) {}
  [[nodiscard]] bool wants(uint64_t /*begin*/, uint64_t /*end*/) const override { return true; }
  [[nodiscard]] std::span<std::byte> place(uint64_t begin, uint64_t end) const override {
    return to_.subspan(begin, end - begin);
  }
  void take(uint64_t begin, std::span<const std::byte> bytes) const override {
    std::ranges::copy(bytes, to_.subspan(begin).begin());
  }

 private:
  std::span<std::byte> to_;
};

// The intersection of the requested box and a stored chunk.
class BoxSink final : public BlockSink {
 public:
  BoxSink(Runs runs, std::span<std::byte> to) : runs_(std::move(runs)), to_(to) {}

  [[nodiscard]] bool wants(uint64_t begin, uint64_t end) const override {
    const int64_t run = runs_.first_ending_after(static_cast<int64_t>(begin));
    return run < runs_.count() && runs_.from(run) < static_cast<int64_t>(end);
  }

  [[nodiscard]] std::span<std::byte> place(uint64_t begin, uint64_t end) const override {
    const auto first = static_cast<int64_t>(begin);
    const int64_t run = runs_.first_ending_after(first);
    const int64_t from = runs_.from(run);
    if (from > first || from + runs_.bytes() < static_cast<int64_t>(end)) return {};
    return to_.subspan(static_cast<size_t>(runs_.to(run) + first - from), end - begin);
  }

  void take(uint64_t begin, std::span<const std::byte> bytes) const override {
    const auto first = static_cast<int64_t>(begin);
    const int64_t end = first + static_cast<int64_t>(bytes.size());
    for (int64_t run = runs_.first_ending_after(first);
         run < runs_.count() && runs_.from(run) < end; ++run) {
      const int64_t from = std::max(runs_.from(run), first);
      const int64_t size = std::min(runs_.from(run) + runs_.bytes(), end) - from;
      std::memcpy(to_.data() + runs_.to(run) + (from - runs_.from(run)),
                  bytes.data() + (from - first), static_cast<size_t>(size));
    }
  }

 private:
  Runs runs_;
  std::span<std::byte> to_;
};

// The requested rows of one chunk of a table.
class RowSink final : public BlockSink {
 public:
  RowSink(std::shared_ptr<const std::vector<int64_t>> places, uint64_t first_row,
          uint64_t row_bytes, std::span<std::byte> to)
      : places_(std::move(places)), first_row_(first_row), row_bytes_(row_bytes), to_(to) {}

  [[nodiscard]] bool wants(uint64_t begin, uint64_t end) const override {
    for (uint64_t row = begin / row_bytes_; row * row_bytes_ < end; ++row)
      if (place_of(row) >= 0) return true;
    return false;
  }

  [[nodiscard]] std::span<std::byte> place(uint64_t begin, uint64_t end) const override {
    // Possible only for one row, or for rows that are adjacent in the result too.
    const uint64_t first = begin / row_bytes_;
    const int64_t to = place_of(first);
    if (to < 0) return {};
    for (uint64_t row = first + 1; row * row_bytes_ < end; ++row)
      if (place_of(row) != to + static_cast<int64_t>(row - first)) return {};
    return to_.subspan(static_cast<uint64_t>(to) * row_bytes_ + (begin - first * row_bytes_),
                       end - begin);
  }

  void take(uint64_t begin, std::span<const std::byte> bytes) const override {
    const uint64_t end = begin + bytes.size();
    for (uint64_t row = begin / row_bytes_; row * row_bytes_ < end; ++row) {
      const int64_t to = place_of(row);
      if (to < 0) continue;
      const uint64_t from = std::max(begin, row * row_bytes_);
      const uint64_t size = std::min(end, (row + 1) * row_bytes_) - from;
      std::memcpy(to_.data() + static_cast<uint64_t>(to) * row_bytes_ + (from - row * row_bytes_),
                  bytes.data() + (from - begin), size);
    }
  }

 private:
  [[nodiscard]] int64_t place_of(uint64_t row) const { return (*places_)[first_row_ + row]; }

  std::shared_ptr<const std::vector<int64_t>> places_;
  uint64_t first_row_;
  uint64_t row_bytes_;
  std::span<std::byte> to_;
};

}  // namespace

BlockSink::~BlockSink() = default;

WantedBytes want_all(const StoredBytes& stored, const std::string& owner, std::span<std::byte> to) {
  return {&stored, &owner, std::make_unique<WholeSink>(to)};
}

void want_box(const StoredTensor& tensor, const Box& box, std::span<std::byte> to,
              std::vector<WantedBytes>& wanted) {
  for (const StoredChunk& chunk : tensor.chunks) {
    if (!overlap(chunk.box, box)) continue;
    Runs runs(chunk.box, box, dtype_size(tensor.dtype));
    wanted.push_back({&chunk.data, &tensor.name, std::make_unique<BoxSink>(std::move(runs), to)});
  }
}

void want_rows(const StoredTensor& table, std::shared_ptr<const std::vector<int64_t>> places,
               std::span<std::byte> to, std::vector<WantedBytes>& wanted) {
  if (to.empty()) return;
  Box row = Box::whole(table.dims);
  row.shape[0] = 1;
  const auto row_bytes = static_cast<uint64_t>(row.numel() * dtype_size(table.dtype));
  for (const StoredChunk& chunk : table.chunks) {
    wanted.push_back({&chunk.data, &table.name,
                      std::make_unique<RowSink>(places, static_cast<uint64_t>(chunk.box.offset[0]),
                                                row_bytes, to)});
  }
}

void want_row_numbers(const StoredTensor& table, std::span<int64_t> to,
                      std::vector<WantedBytes>& wanted) {
  for (const StoredChunk& chunk : table.chunks) {
    const auto part = to.subspan(static_cast<size_t>(chunk.box.offset[0]),
                                 static_cast<size_t>(chunk.box.shape[0]));
    wanted.push_back(want_all(chunk.rows, table.name, std::as_writable_bytes(part)));
  }
}

Status check_row_numbers(const StoredTensor& table, std::span<const int64_t> numbers) {
  for (const int64_t row : numbers) {
    if (row >= 0 && (table.height <= 0 || row < table.height)) continue;
    return of_var(InvalidData("row {}: expected 0 to {}", row, table.height - 1), table.name);
  }
  return Ok();
}

Status want_chosen_rows(const StoredTensor& table, std::span<const int64_t> numbers,
                        const std::function<bool(int64_t)>& chosen, SelectedRows& result,
                        std::vector<WantedBytes>& wanted) {
  auto places = std::make_shared<std::vector<int64_t>>();
  places->reserve(numbers.size());
  result.height = table.height;
  result.rows.clear();
  for (const int64_t row : numbers) {
    const bool taken = !chosen || chosen(row);
    places->push_back(taken ? static_cast<int64_t>(result.rows.size()) : -1);
    if (taken) result.rows.push_back(row);
  }
  Dims dims = table.dims;
  dims[0] = static_cast<int64_t>(result.rows.size());
  if (Status status = result.value.resize(table.dtype, dims); !status.ok())
    return of_var(std::move(status), table.name);
  want_rows(table, std::move(places),
            {result.value.raw(), static_cast<size_t>(result.value.bytes())}, wanted);
  return Ok();
}

Status compare_block(const StoredBytes& stored, size_t block, const Checksum& found,
                     uint64_t block_bytes, const std::string& owner) {
  const Checksum expected = stored.blocks[block];
  if (found == expected) return Ok();
  return of_var(InvalidData("the bytes from {} on are not what was saved: expected checksum {}, "
                            "found {}",
                            stored.begin + block * block_bytes, expected.text(), found.text()),
                owner);
}

Status no_such_tensor(const Manifest& manifest, std::string_view name) {
  const std::vector<std::string> names = manifest.value_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string nearest = nearest_name(name, views);
  Status status = of_var(NotFound("the checkpoint has no such tensor"), name);
  return nearest.empty() ? status
                         : std::move(status).with_hint(fmt::format("did you mean '{}'?", nearest));
}

std::vector<BlockRead> blocks_of(const std::vector<WantedBytes>& wanted, uint64_t block_bytes) {
  std::vector<BlockRead> blocks;
  for (const WantedBytes& each : wanted) {
    for (size_t i = 0; i < each.stored->blocks.size(); ++i) {
      const uint64_t begin = i * block_bytes;
      const uint64_t end = std::min(begin + block_bytes, each.stored->size());
      if (each.sink->wants(begin, end)) blocks.push_back({&each, i, begin, end});
    }
  }
  std::ranges::stable_sort(blocks, {}, [](const BlockRead& block) {
    return std::tuple(block.wanted->stored->file, block.at());
  });
  return blocks;
}

}  // namespace millrace::io
