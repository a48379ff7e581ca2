#include "kernels/gpu/host_device.h"

#include <array>
#include <cstring>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <sys/mman.h>

#include "kernels/gpu/functors/all.h"
#include "kernels/gpu/host_collectives.h"

namespace millrace::gpu {
namespace {

// A team of one thread.
struct OneThread {
  [[nodiscard]] static constexpr int64_t rank() { return 0; }
  [[nodiscard]] static constexpr int64_t size() { return 1; }
  static constexpr double sum(double x) { return x; }
  static constexpr double product(double x) { return x; }
  static constexpr float max(float x) { return x; }
};

using Loop = void (*)(const void* functor, int64_t count);

template <typename Functor>
void loop_each(const void* functor, int64_t count) {
  const auto& f = *static_cast<const Functor*>(functor);
  for (int64_t i = 0; i < count; ++i) f(i);
}
template <typename Functor>
void loop_rows(const void* functor, int64_t count) {
  const auto& f = *static_cast<const Functor*>(functor);
  for (int64_t i = 0; i < count; ++i) f(OneThread(), i);
}
template <typename... Functors>
constexpr std::array<Loop, sizeof...(Functors)> each_loops(FunctorList<Functors...> /*list*/) {
  return {&loop_each<Functors>...};
}
template <typename... Functors>
constexpr std::array<Loop, 2 * sizeof...(Functors)> row_loops(FunctorList<Functors...> /*list*/) {
  return {&loop_rows<Functors>..., &loop_rows<Functors>...};
}

constexpr int64_t kPage = 4096;

class HostDevice final : public Device {
 public:
  explicit HostDevice(const DeviceOptions& options)
      : limit_(options.memory_limit > 0 ? options.memory_limit
                                        : std::numeric_limits<int64_t>::max()) {
    info_.name = "emulation in the memory of the process";
    info_.memory_bytes = options.memory_limit;
    info_.free_bytes = options.memory_limit;
  }
  ~HostDevice() override {
    for (const auto& [data, bytes] : pieces_) ::munmap(data, static_cast<size_t>(bytes));
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  StatusOr<std::byte*> allocate(int64_t bytes) override {
    const int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
    if (bytes > limit_ - used_)
      return Status(StatusCode::kResource, fmt::format("the device has {} bytes", limit_));
    void* const data = ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return Status(StatusCode::kResource,
                    fmt::format("the system cannot provide {} bytes", rounded));
    std::memset(data, 0xFF, static_cast<size_t>(rounded));  // NaN in every float format
    ::mprotect(data, static_cast<size_t>(rounded), PROT_NONE);
    pieces_[static_cast<std::byte*>(data)] = rounded;
    used_ += bytes;
    sizes_[static_cast<std::byte*>(data)] = bytes;
    return static_cast<std::byte*>(data);
  }

  void release(std::byte* data) override {
    ::munmap(data, static_cast<size_t>(pieces_[data]));
    used_ -= sizes_[data];
    pieces_.erase(data);
    sizes_.erase(data);
  }

  Status copy_in(const std::byte* from, std::byte* to, int64_t bytes) override {
    return open_while([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  Status copy_out(const std::byte* from, std::byte* to, int64_t bytes) override {
    return open_while([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  Status copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    return open_while([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  Status wait() override { return Ok(); }

  Status launch_each(size_t functor, const void* data, int64_t count) override {
    static constexpr auto kLoops = each_loops(EachFunctors{});
    return open_while([&] { kLoops[functor](data, count); });
  }
  Status launch_rows(size_t functor, const void* data, int64_t rows) override {
    static constexpr auto kLoops = row_loops(RowFunctors{});
    return open_while([&] { kLoops[functor](data, rows); });
  }

  StatusOr<Collectives*> collectives() override { return collectives_.get(); }

 private:
  template <typename Work>
  Status open_while(const Work& work) {
    protect(PROT_READ | PROT_WRITE);
    work();
    protect(PROT_NONE);
    return Ok();
  }
  void protect(int rights) const {
    for (const auto& [data, bytes] : pieces_) ::mprotect(data, static_cast<size_t>(bytes), rights);
  }

  DeviceInfo info_;
  int64_t limit_;
  int64_t used_ = 0;
  std::map<std::byte*, int64_t> pieces_;  ///< rounded up to whole pages
  std::map<std::byte*, int64_t> sizes_;   ///< as requested
  std::unique_ptr<Collectives> collectives_ = make_host_collectives(*this);
};

}  // namespace

std::shared_ptr<Device> open_host_device(const DeviceOptions& options) {
  return std::make_shared<HostDevice>(options);
}

}  // namespace millrace::gpu
