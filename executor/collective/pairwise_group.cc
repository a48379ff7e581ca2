#include "executor/collective/pairwise_group.h"

#include <algorithm>
#include <cstring>

namespace millrace::executor {
namespace {

// Up to this size the whole value is sent log2(size) times; above it, each byte goes twice around
// the ring.
constexpr int64_t kDoublingBytes = 32 << 10;
// Small enough to stay in a cache from its arrival until it is combined.
constexpr int64_t kPairwiseGroupSegmentBytes = 128 << 10;

bool is_power_of_two(int value) {
  return (value & (value - 1)) == 0;
}

// The start of each of the pieces, and the end.
std::vector<int64_t> cut(int64_t count, int pieces) {
  std::vector<int64_t> starts;
  for (int64_t i = 0; i <= pieces; ++i) starts.push_back(count * i / pieces);
  return starts;
}

}  // namespace

Status PairwiseGroup::exchange_segments(const Exchange& bytes, Arrived arrived) {
  scratch_.resize(static_cast<size_t>(kPairwiseGroupSegmentBytes));
  const int64_t out_bytes = bytes.to < 0 ? 0 : bytes.out_bytes;
  const int64_t in_bytes = bytes.from < 0 ? 0 : bytes.in_bytes;
  for (int64_t at = 0; at < std::max(out_bytes, in_bytes); at += kPairwiseGroupSegmentBytes) {
    const int64_t sent = std::clamp<int64_t>(out_bytes - at, 0, kPairwiseGroupSegmentBytes);
    const int64_t received = std::clamp<int64_t>(in_bytes - at, 0, kPairwiseGroupSegmentBytes);
    MILLRACE_RETURN_IF_ERROR(exchange({bytes.out + at, sent, sent > 0 ? bytes.to : -1,
                                       scratch_.data(), received, received > 0 ? bytes.from : -1}));
    if (received > 0) MILLRACE_RETURN_IF_ERROR(arrived(at, scratch_.data(), received));
  }
  return Ok();
}

// Partners combine in the same order, so all ranks get the same bits. Sent data must not change
// until it has been sent, so results are written to the other buffer, from which the next round
// sends.
Status PairwiseGroup::reduce_by_doubling(DType dtype, std::byte* data, int64_t count,
                                         Reduction reduction) {
  const int64_t size_of = dtype_size(dtype);
  const int64_t bytes = count * size_of;
  sums_.resize(static_cast<size_t>(bytes));
  std::byte* from = data;
  std::byte* to = sums_.data();
  for (int distance = 1; distance < size(); distance *= 2) {
    const int partner = rank() ^ distance;
    const auto combine = [&](int64_t at, const std::byte* other, int64_t length) {
      const std::byte* parts[2] = {from + at, other};
      if (partner < rank()) std::swap(parts[0], parts[1]);
      std::byte* const results[1] = {to + at};
      return kernels::reduce_parts(dtype, reduction, parts, results, length / size_of);
    };
    MILLRACE_RETURN_IF_ERROR(
        exchange_segments({from, bytes, partner, nullptr, bytes, partner}, combine));
    std::swap(from, to);
  }
  if (from != data) std::memcpy(data, from, static_cast<size_t>(bytes));
  return Ok();
}

PairwiseGroup::Exchange PairwiseGroup::ring_exchange(int step, std::byte* data,
                                                     const std::vector<int64_t>& starts,
                                                     int64_t element_bytes) const {
  const auto out = static_cast<size_t>(neighbour(-step));
  const auto in = static_cast<size_t>(neighbour(-step - 1));
  const int64_t sent = (starts[out + 1] - starts[out]) * element_bytes;
  const int64_t received = (starts[in + 1] - starts[in]) * element_bytes;
  return {.out = data + starts[out] * element_bytes,
          .out_bytes = sent,
          .to = sent > 0 ? neighbour(1) : -1,
          .in = data + starts[in] * element_bytes,
          .in_bytes = received,
          .from = received > 0 ? neighbour(-1) : -1};
}

// Piece r starts at rank r + 1 and ends, combined, at rank r.
Status PairwiseGroup::combine_ring(DType dtype, std::byte* data, const std::vector<int64_t>& starts,
                                   Reduction reduction) {
  const int64_t size_of = dtype_size(dtype);
  for (int step = 1; step < size(); ++step) {
    const Exchange bytes = ring_exchange(step, data, starts, size_of);
    std::byte* const own = bytes.in;
    const auto combine = [&](int64_t at, const std::byte* other, int64_t length) {
      const std::byte* const parts[2] = {other, own + at};
      std::byte* const results[1] = {own + at};
      return kernels::reduce_parts(dtype, reduction, parts, results, length / size_of);
    };
    MILLRACE_RETURN_IF_ERROR(exchange_segments(bytes, combine));
  }
  return Ok();
}

// Every rank has its piece; the pieces go around the ring until all ranks have all of them.
Status PairwiseGroup::gather_ring(std::byte* data, const std::vector<int64_t>& starts,
                                  int64_t element_bytes) {
  for (int step = 0; step + 1 < size(); ++step)
    MILLRACE_RETURN_IF_ERROR(exchange(ring_exchange(step, data, starts, element_bytes)));
  return Ok();
}

Status PairwiseGroup::do_all_reduce(DType dtype, std::byte* data, int64_t count,
                                    Reduction reduction) {
  const int64_t size_of = dtype_size(dtype);
  if (count * size_of <= kDoublingBytes && is_power_of_two(size()))
    return reduce_by_doubling(dtype, data, count, reduction);
  const std::vector<int64_t> starts = cut(count, size());
  MILLRACE_RETURN_IF_ERROR(combine_ring(dtype, data, starts, reduction));
  return gather_ring(data, starts, size_of);
}

// The data of the other ranks must not change, so they work on a copy.
Status PairwiseGroup::do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                                int root) {
  const int64_t size_of = dtype_size(dtype);
  copy_.assign(data, data + count * size_of);
  const std::vector<int64_t> starts = cut(count, size());
  MILLRACE_RETURN_IF_ERROR(combine_ring(dtype, copy_.data(), starts, reduction));
  const auto piece = [&](int r) {
    const auto at = static_cast<size_t>(r);
    return std::pair(starts[at] * size_of, (starts[at + 1] - starts[at]) * size_of);
  };
  if (rank() != root) {
    const auto [at, bytes] = piece(rank());
    return bytes == 0 ? Ok() : exchange({copy_.data() + at, bytes, root, nullptr, 0, -1});
  }
  for (int other = 0; other < size(); ++other) {
    const auto [at, bytes] = piece(other);
    if (bytes == 0) continue;
    if (other == root) {
      std::memcpy(data + at, copy_.data() + at, static_cast<size_t>(bytes));
    } else {
      MILLRACE_RETURN_IF_ERROR(exchange({nullptr, 0, -1, data + at, bytes, other}));
    }
  }
  return Ok();
}

// A tree: in every round each rank that has the bytes sends them to one that does not.
Status PairwiseGroup::do_broadcast(std::byte* data, int64_t bytes, int root) {
  const int place = (rank() - root + size()) % size();
  const auto rank_at = [&](int of) { return (of + root) % size(); };
  for (int have = 1; have < size(); have *= 2) {
    if (place < have && place + have < size()) {
      MILLRACE_RETURN_IF_ERROR(exchange({data, bytes, rank_at(place + have), nullptr, 0, -1}));
    } else if (place >= have && place < 2 * have) {
      MILLRACE_RETURN_IF_ERROR(exchange({nullptr, 0, -1, data, bytes, rank_at(place - have)}));
    }
  }
  return Ok();
}

Status PairwiseGroup::do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) {
  std::byte* const own = all + rank() * bytes;
  if (own != part) std::memcpy(own, part, static_cast<size_t>(bytes));
  return gather_ring(all, cut(bytes * size(), size()), 1);
}

Status PairwiseGroup::do_reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                        std::byte* part, Reduction reduction) {
  const int64_t piece = count * dtype_size(dtype);
  copy_.assign(all, all + piece * size());
  MILLRACE_RETURN_IF_ERROR(
      combine_ring(dtype, copy_.data(), cut(count * size(), size()), reduction));
  std::memcpy(part, copy_.data() + piece * rank(), static_cast<size_t>(piece));
  return Ok();
}

Status PairwiseGroup::do_barrier() {
  std::byte out{};
  std::byte in{};
  for (int distance = 1; distance < size(); distance *= 2) {
    MILLRACE_RETURN_IF_ERROR(
        exchange({&out, 1, neighbour(distance), &in, 1, (rank() - distance + size()) % size()}));
  }
  return Ok();
}

Status PairwiseGroup::do_send(const std::byte* data, int64_t bytes, int to) {
  return exchange({data, bytes, to, nullptr, 0, -1});
}

Status PairwiseGroup::do_receive(std::byte* data, int64_t bytes, int from) {
  return exchange({nullptr, 0, -1, data, bytes, from});
}

}  // namespace millrace::executor
