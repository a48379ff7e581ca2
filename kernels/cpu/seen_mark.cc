#include "kernels/cpu/seen_mark.h"

#include <cstring>

namespace millrace::kernels {
namespace seen_mark {
namespace {

class Seen final : public Layout {
 public:
  explicit Seen(int64_t bytes) : bytes_(bytes) {}
  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  [[nodiscard]] bool same_as(const Layout& other) const override { return this == &other; }
  Status to_plain(const std::byte* from, std::byte* to) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes_));
    return Ok();
  }
  [[nodiscard]] std::string name() const override { return "row-major, seen by a kernel"; }
  [[nodiscard]] bool is_private() const override { return true; }

 private:
  int64_t bytes_;
};

}  // namespace
}  // namespace seen_mark

StatusOr<LayoutPtr> mark_seen(Tensor& tensor) {
  if (dynamic_cast<const seen_mark::Seen*>(tensor.layout().get()) != nullptr)
    return tensor.layout();
  MILLRACE_RETURN_IF_ERROR(make_plain(tensor));
  const LayoutPtr mark = std::make_shared<const seen_mark::Seen>(tensor.bytes());
  const std::byte* const place = tensor.raw();
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  MILLRACE_RETURN_IF_ERROR(tensor.resize(tensor.dtype(), dims, mark));
  // gets other memory only if another tensor shares the old one and so keeps it
  if (tensor.raw() != place) std::memcpy(tensor.raw(), place, static_cast<size_t>(tensor.bytes()));
  return mark;
}

}  // namespace millrace::kernels
