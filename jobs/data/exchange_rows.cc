#include "jobs/data/exchange_rows.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/multi_slot/line_share.h"

namespace millrace::jobs {
namespace exchange_rows_parts {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20U;

// What a rank tells all others first.
struct Facts {
  uint64_t seed = 0;
  int64_t number = 0;
  uint64_t slots = 0;  ///< a hash of them
  int64_t rows = 0;
};

uint64_t hash_of(std::span<const io::Slot> slots) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  };
  for (const io::Slot& slot : slots)
    if (slot.is_used)
      add(fmt::format("{}\n{}{}{}\n", slot.name, slot.is_float, slot.is_dense, slot.width()));
  return hash;
}

StatusOr<std::vector<Facts>> facts_of_all(const Facts& own, executor::CollectiveGroup& ranks) {
  std::vector<Facts> all(static_cast<size_t>(ranks.size()));
  MILLRACE_RETURN_IF_ERROR(ranks.all_gather(reinterpret_cast<const std::byte*>(&own), sizeof(own),
                                            reinterpret_cast<std::byte*>(all.data())));
  for (size_t r = 1; r < all.size(); ++r) {
    const auto differ = [&](const char* what, auto first, auto found) {
      return InvalidArgument("expected the same {} on all ranks, found {} on rank 0 and {} on {}",
                             what, first, found, r);
    };
    if (all[r].slots != all[0].slots)
      return InvalidArgument(
          "expected the same slots on all ranks, found others on rank {} than on 0", r);
    if (all[r].seed != all[0].seed) return differ("seed", all[0].seed, all[r].seed);
    if (all[r].number != all[0].number)
      return differ("number of calls since load", all[0].number, all[r].number);
  }
  return all;
}

// Rows as bytes: for every used slot a number of values, and the values.
class Encoder {
 public:
  Encoder(std::span<const io::Slot> slots, const io::SlotRows& rows) : slots_(slots), rows_(rows) {}

  void add(int64_t row) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (!slots_[s].is_used) continue;
      const io::SlotColumn& column = rows_.columns[s];
      const auto at = static_cast<size_t>(row);
      const int64_t begin = at == 0 ? 0 : column.ends[at - 1];
      const int64_t count = column.ends[at] - begin;
      put(&count, sizeof(count));
      if (slots_[s].is_float) put(column.floats.data() + begin, count * sizeof(float));
      if (!slots_[s].is_float) put(column.ids.data() + begin, count * sizeof(int64_t));
    }
  }
  std::string& bytes() { return bytes_; }

 private:
  void put(const void* from, size_t size) { bytes_.append(static_cast<const char*>(from), size); }

  std::span<const io::Slot> slots_;
  const io::SlotRows& rows_;
  std::string bytes_;
};

template <typename T>
bool take(std::string_view& bytes, size_t count, std::vector<T>& to) {
  if (count > bytes.size() / sizeof(T)) return false;
  const size_t before = to.size();
  to.resize(before + count);
  if (count > 0) std::memcpy(to.data() + before, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return true;
}

// Appends the rows of a message.
Status decode(std::string_view bytes, std::span<const io::Slot> slots, io::SlotRows& to) {
  std::vector<int64_t> count;
  while (!bytes.empty()) {
    for (size_t s = 0; s < slots.size(); ++s) {
      if (!slots[s].is_used) continue;
      io::SlotColumn& column = to.columns[s];
      count.clear();
      const bool complete =
          take(bytes, 1, count) && count[0] >= 0 &&
          (slots[s].is_float ? take(bytes, static_cast<size_t>(count[0]), column.floats)
                             : take(bytes, static_cast<size_t>(count[0]), column.ids));
      if (!complete) return Internal("a message of examples is not complete");
      column.ends.push_back((column.ends.empty() ? 0 : column.ends.back()) + count[0]);
    }
    ++to.rows;
  }
  return Ok();
}

// The rows that this rank keeps or has received, by the rank that had them.
class Exchange {
 public:
  Exchange(const RowsExchange& how, llvm::ArrayRef<int64_t> order, executor::CollectiveGroup& ranks,
           const io::SlotRows& rows, int64_t first)
      : how_(how), order_(order), ranks_(ranks), rows_(rows), first_(first) {
    share_.trainers = ranks.size();
    share_.epoch = how.number;
    received_.resize(static_cast<size_t>(ranks.size()));
    for (io::SlotRows& each : received_) each.columns.resize(how.slots.size());
  }

  // In each round a rank talks to one other rank at most, and both know it.
  Status run() {
    const int size = ranks_.size();
    for (int round = 0; round < size; ++round) {
      const int other = (round - ranks_.rank() + size) % size;
      if (other == ranks_.rank()) {
        MILLRACE_RETURN_IF_ERROR(keep());
        continue;
      }
      const bool first = ranks_.rank() < other;
      if (first) MILLRACE_RETURN_IF_ERROR(send(other));
      MILLRACE_RETURN_IF_ERROR(receive(other));
      if (!first) MILLRACE_RETURN_IF_ERROR(send(other));
    }
    return Ok();
  }
  [[nodiscard]] const io::LineShare& share() const { return share_; }
  std::vector<io::SlotRows>& received() { return received_; }

 private:
  // Calls `use` with messages of the rows for a rank.
  template <typename Use>
  Status for_pieces(int rank, Use&& use) {
    io::LineShare share = share_;
    share.trainer = rank;
    Encoder piece(how_.slots, rows_);
    for (size_t i = 0; i < order_.size(); ++i) {
      if (!share.has(how_.seed, first_ + static_cast<int64_t>(i))) continue;
      piece.add(order_[i]);
      if (piece.bytes().size() < kPieceBytes) continue;
      MILLRACE_RETURN_IF_ERROR(use(piece.bytes()));
      piece.bytes().clear();
    }
    return piece.bytes().empty() ? Ok() : use(piece.bytes());
  }
  Status keep() {
    return for_pieces(ranks_.rank(), [&](const std::string& bytes) {
      return decode(bytes, how_.slots, received_[static_cast<size_t>(ranks_.rank())]);
    });
  }
  Status send_size(int64_t size, int to) {
    return ranks_.send(reinterpret_cast<const std::byte*>(&size), sizeof(size), to);
  }
  Status send(int to) {
    const auto send_piece = [&](const std::string& bytes) -> Status {
      const auto size = static_cast<int64_t>(bytes.size());
      MILLRACE_RETURN_IF_ERROR(send_size(size, to));
      return ranks_.send(reinterpret_cast<const std::byte*>(bytes.data()), size, to);
    };
    MILLRACE_RETURN_IF_ERROR(for_pieces(to, send_piece));
    return send_size(0, to);
  }
  Status receive(int from) {
    std::string bytes;
    while (true) {
      int64_t size = 0;
      MILLRACE_RETURN_IF_ERROR(
          ranks_.receive(reinterpret_cast<std::byte*>(&size), sizeof(size), from));
      if (size == 0) return Ok();
      bytes.resize(static_cast<size_t>(size));
      MILLRACE_RETURN_IF_ERROR(
          ranks_.receive(reinterpret_cast<std::byte*>(bytes.data()), size, from));
      MILLRACE_RETURN_IF_ERROR(decode(bytes, how_.slots, received_[static_cast<size_t>(from)]));
    }
  }

  const RowsExchange& how_;
  llvm::ArrayRef<int64_t> order_;
  executor::CollectiveGroup& ranks_;
  const io::SlotRows& rows_;
  int64_t first_;  ///< position of the first row among those of all ranks
  io::LineShare share_;
  std::vector<io::SlotRows> received_;
};

}  // namespace
}  // namespace exchange_rows_parts

Status exchange_rows(const RowsExchange& how, llvm::ArrayRef<int64_t> order,
                     executor::CollectiveGroup& ranks, io::SlotRows& rows) {
  using namespace exchange_rows_parts;
  const Facts own{how.seed, how.number, hash_of(how.slots), rows.rows};
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Facts> all, facts_of_all(own, ranks));
  int64_t first = 0;
  int64_t total = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    if (r == static_cast<size_t>(ranks.rank())) first = total;
    total += all[r].rows;
  }
  rows.columns.resize(how.slots.size());
  Exchange exchange(how, order, ranks, rows, first);
  MILLRACE_RETURN_IF_ERROR(exchange.run());
  io::SlotRows merged;
  for (io::SlotRows& each : exchange.received()) append_rows(std::exchange(each, {}), merged);
  io::LineShare share = exchange.share();
  share.trainer = ranks.rank();
  const int64_t expected = share.count(how.seed, total);
  if (merged.rows != expected)
    return Internal("expected {} examples after the exchange, found {}", expected, merged.rows);
  rows = std::move(merged);
  return Ok();
}

}  // namespace millrace::jobs
