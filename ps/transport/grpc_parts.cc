#include "ps/transport/grpc_parts.h"

#include <algorithm>
#include <utility>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

// Below this size, one copy is cheaper than several slices.
constexpr uint64_t kCopied = 32 << 10U;

void drop(void* keep) {
  delete static_cast<std::shared_ptr<void>*>(keep);
}

}  // namespace

MessageSplitter::MessageSplitter(const OutgoingMessage& message, std::shared_ptr<void> keep)
    : message_(message), keep_(std::move(keep)), left_(message.bytes()) {}

void MessageSplitter::next(grpc::ByteBuffer& part) {
  std::vector<grpc::Slice> slices;
  if (!head_done_) {
    head_done_ = true;
    left_ -= message_.head.size();
    if (left_ <= kCopied) {
      std::string all = message_.head;
      for (const std::span<const std::byte> piece : message_.payload)
        all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      left_ = 0;
      const grpc::Slice slice(all);
      part = grpc::ByteBuffer(&slice, 1);
      return;
    }
    slices.emplace_back(message_.head);
  }
  for (size_t room = kChunkBytes; room > 0 && left_ > 0;) {
    const std::span<const std::byte> piece = message_.payload[piece_].subspan(offset_);
    const size_t count = std::min(room, piece.size());
    // gRPC's slices are not const, but gRPC only reads from slices that it sends.
    void* const data = const_cast<std::byte*>(piece.data());
    slices.emplace_back(data, count, drop, new std::shared_ptr<void>(keep_));
    room -= count;
    left_ -= count;
    offset_ += count;
    if (count < piece.size()) continue;
    ++piece_;
    offset_ = 0;
  }
  part = grpc::ByteBuffer(slices.data(), slices.size());
}

Status feed(MessageReader& reader, const grpc::ByteBuffer& part) {
  std::vector<grpc::Slice> slices;
  if (!part.Dump(&slices).ok()) return Internal("a gRPC message cannot be read");
  for (const grpc::Slice& slice : slices)
    MILLRACE_RETURN_IF_ERROR(reader.feed(std::as_bytes(std::span(slice.begin(), slice.size()))));
  return Ok();
}

}  // namespace millrace::ps
