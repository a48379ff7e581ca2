#include "kernels/gpu/memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>

namespace millrace::gpu {

Block::~Block() {
  memory_->release(data_);
}

StatusOr<std::shared_ptr<Block>> Memory::allocate(int64_t bytes, std::string_view holder) {
  const int64_t wanted = std::max<int64_t>(bytes, 1);
  ++allocations_;
  StatusOr<std::byte*> data = device_->allocate(wanted);
  if (!data.ok()) {
    Status status(data.status().code(),
                  fmt::format("no device memory for '{}': {} bytes wanted, {} in use: {}", holder,
                              bytes, in_use_, data.status().message()));
    if (held_.empty()) return status;
    return std::move(status).with_note(fmt::format("most is held by {}", holders_text()));
  }
  held_[*data] = {wanted, std::string(holder)};
  in_use_ += wanted;
  peak_ = std::max(peak_, in_use_);
  return std::make_shared<Block>(shared_from_this(), *data, wanted);
}

void Memory::release(std::byte* data) {
  const auto found = held_.find(data);
  in_use_ -= found->second.bytes;
  held_.erase(found);
  device_->release(data);
}

// The three largest holders; ties are ordered by name.
std::string Memory::holders_text() const {
  std::vector<const Held*> sorted;
  for (const auto& [data, held] : held_) sorted.push_back(&held);
  std::sort(sorted.begin(), sorted.end(), [](const Held* a, const Held* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->holder < b->holder;
  });
  std::string text;
  for (const Held* held : llvm::ArrayRef(sorted).take_front(3)) {
    text += fmt::format("{}'{}' ({} bytes)", text.empty() ? "" : ", ", held->holder, held->bytes);
  }
  return text;
}

Status Memory::copy_in(const std::byte* from, std::byte* to, int64_t bytes) {
  if (bytes == 0) return Ok();
  ++traffic_.copies_in;
  traffic_.bytes_in += bytes;
  return device_->copy_in(from, to, bytes);
}

Status Memory::copy_out(const std::byte* from, std::byte* to, int64_t bytes) {
  if (bytes == 0) return Ok();
  ++traffic_.copies_out;
  traffic_.bytes_out += bytes;
  return device_->copy_out(from, to, bytes);
}

}  // namespace millrace::gpu
