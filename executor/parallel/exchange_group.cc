#include "executor/parallel/exchange_group.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/overlap/spin.h"
#include "framework/base/errors.h"
#include "framework/tensor/join_rows.h"
#include "framework/tensor/layout.h"
#include "kernels/cpu/collective/sum_parts.h"

namespace millrace::executor {
namespace {

// Large enough that claiming one costs nothing, small enough that its sum stays in the cache.
constexpr int64_t kChunkBytes = int64_t{64} << 10U;
constexpr size_t kExchangeGroupCacheLine = 64;

Status cancelled() {
  return {StatusCode::kDistributed, "cancelled: another device has failed"};
}

}  // namespace

// Chunks that one device processes until others run out of work.
struct alignas(kExchangeGroupCacheLine) ExchangeGroup::Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// One exchange. Rounds count its uses in a run: the all-reduce of kernels has many.
struct ExchangeGroup::Slot {
  explicit Slot(int exchange, int devices)
      : number(exchange),
        shares(static_cast<size_t>(devices)),
        parts(static_cast<size_t>(devices)),
        plain(static_cast<size_t>(devices)),
        rows(static_cast<size_t>(devices)),
        dtypes(static_cast<size_t>(devices)),
        rounds(static_cast<size_t>(devices)) {}

  const int number;
  ExchangeSpec spec;  ///< set by device 0, the same in all rounds
  std::vector<Share> shares;
  std::vector<std::vector<ExchangePart>> parts;  ///< by device
  /// By device: row-major copies of parts whose element order differs; end() moves them into the
  /// parts.
  std::vector<std::vector<Tensor>> plain;
  std::vector<const SelectedRows*> rows;  ///< by device
  SelectedRows all_rows;                  ///< of all processes; set by device 0
  std::vector<DType> dtypes;              ///< by device
  /// By device: number of times it has begun. Written by the device, read by others only for
  /// messages.
  std::vector<std::atomic<int64_t>> rounds;
  std::vector<int64_t> starts;  ///< index of the first element of every part among all elements
  int64_t elements = 0;
  int64_t chunk = 1;  ///< elements
  int64_t chunks = 0;

  alignas(kExchangeGroupCacheLine) std::atomic<int64_t> arrived{0};  ///< begins of all rounds
  alignas(kExchangeGroupCacheLine) std::atomic<int64_t> ready{
      0};  ///< last round in which all devices have arrived
  alignas(kExchangeGroupCacheLine) std::atomic<int64_t> done{0};  ///< chunks of this round
  alignas(kExchangeGroupCacheLine) std::atomic<int64_t> summed{
      0};                          ///< last round that all processes have summed
  std::atomic<int64_t> copied{0};  ///< devices that have copied that sum

  [[nodiscard]] int64_t round(int device) const {
    return rounds[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_ready(int device) const {
    return ready.load(std::memory_order_seq_cst) == round(device);
  }
  /// Moves the row-major copies of a device into its tensors.
  void take_plain(int device) {
    const auto d = static_cast<size_t>(device);
    for (size_t i = 0; i < plain[d].size(); ++i) {
      if (plain[d][i].initialized()) *parts[d][i].tensor = std::move(plain[d][i]);
    }
    plain[d].clear();
  }
  [[nodiscard]] bool is_done() const { return done.load(std::memory_order_seq_cst) >= chunks; }
};

ExchangeGroup::ExchangeGroup(const ExchangeOptions& options)
    : options_(options), pending_(static_cast<size_t>(options.devices)) {
  for (int i = 0; i < options.exchanges; ++i)
    slots_.push_back(std::make_unique<Slot>(i, options.devices));
  const bool few_run = options.runners > 0 && options.runners < options.devices;
  spins_ = few_run ? 0 : spins_for(options.devices);
}

ExchangeGroup::~ExchangeGroup() = default;

int ExchangeGroup::ranks() const {
  return options_.devices * (options_.trainers == nullptr ? 1 : options_.trainers->trainers());
}

void ExchangeGroup::reset() {
  for (const std::unique_ptr<Slot>& slot : slots_) {
    slot->arrived = 0;
    slot->ready = 0;
    slot->done = 0;
    slot->summed = 0;
    slot->copied = 0;
    for (std::vector<Tensor>& plain : slot->plain) plain.clear();
    for (std::atomic<int64_t>& round : slot->rounds) round = 0;
  }
  for (std::vector<int>& pending : pending_) pending.clear();
  const std::lock_guard lock(mutex_);
  error_ = Ok();
  running_ = 0;
  failed_ = false;
}

void ExchangeGroup::fail() {
  failed_.store(true, std::memory_order_seq_cst);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void ExchangeGroup::report(Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = std::move(status);
  }
  fail();
}

void ExchangeGroup::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void ExchangeGroup::enter() {
  if (options_.runners <= 0 || options_.runners >= options_.devices) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ < options_.runners; });
  ++running_;
}

void ExchangeGroup::leave() {
  if (options_.runners <= 0 || options_.runners >= options_.devices) return;
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_all();
}

Status ExchangeGroup::wait(int device, const Slot& slot, llvm::function_ref<bool()> done) {
  return wait_until(done, [&] { return waited_too_long(device, slot); });
}

Status ExchangeGroup::wait_until(llvm::function_ref<bool()> done,
                                 llvm::function_ref<Status()> late) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done()) return Ok();
    if (failed()) break;
    spin_pause();
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(options_.timeout_ms);
  leave();
  Status status;
  {
    std::unique_lock lock(mutex_);
    ++sleepers_;
    const auto over = [&] { return done() || failed(); };
    const bool in_time = changed_.wait_until(lock, deadline, over);
    --sleepers_;
    if (!in_time) {
      status = late();
    } else if (!done()) {
      status = error_.ok() ? cancelled() : error_;
    }
  }
  enter();
  if (!status.ok()) fail();
  return status;
}

Status ExchangeGroup::waited_too_long(int device, const Slot& slot) const {
  std::vector<int> missing;
  for (int other = 0; other < options_.devices; ++other) {
    if (slot.round(other) < slot.round(device)) missing.push_back(other);
  }
  return {StatusCode::kDistributed,
          fmt::format(
              "device {} has waited {} ms for exchange {}; {}", device, options_.timeout_ms,
              slot.number,
              missing.empty()
                  ? std::string("all devices have arrived, but have not finished")
                  : fmt::format("devices that have not arrived: {}", fmt::join(missing, ", ")))};
}

Status ExchangeGroup::begin(int device, int exchange, const ExchangeSpec& spec, DType dtype,
                            std::span<const ExchangePart> parts) {
  Slot& slot = *slots_[static_cast<size_t>(exchange)];
  slot.parts[static_cast<size_t>(device)].assign(parts.begin(), parts.end());
  slot.dtypes[static_cast<size_t>(device)] = dtype;
  if (device == 0 && slot.round(0) == 0) slot.spec = spec;  // the same in later rounds
  return arrive(slot, device);
}

Status ExchangeGroup::begin_rows(int device, int exchange, const ExchangeSpec& spec,
                                 const SelectedRows& rows) {
  Slot& slot = *slots_[static_cast<size_t>(exchange)];
  slot.rows[static_cast<size_t>(device)] = &rows;
  if (device == 0 && slot.round(0) == 0) slot.spec = spec;  // the same in later rounds
  return arrive(slot, device);
}

Status ExchangeGroup::arrive(Slot& slot, int device) {
  if (failed()) return cancelled();
  const int64_t round = slot.round(device) + 1;
  slot.rounds[static_cast<size_t>(device)].store(round, std::memory_order_relaxed);
  pending_[static_cast<size_t>(device)].push_back(slot.number);
  if (slot.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == round * options_.devices) {
    if (Status status = prepare(slot); !status.ok()) {
      report(status);
      return status;
    }
    slot.ready.store(round, std::memory_order_seq_cst);
    wake();
  }
  help_pending(device);
  return Ok();
}

// Padding of a layout is summed along with the elements, but never read. The tensors are not
// modified here, because their devices may already access them.
Status ExchangeGroup::find_memory(Slot& slot) const {
  for (size_t i = 0; i < slot.parts[0].size(); ++i) {
    const auto part = [&](size_t device) -> ExchangePart* {
      return i < slot.parts[device].size() ? &slot.parts[device][i] : nullptr;
    };
    const Tensor* const first = part(0)->tensor;
    if (first == nullptr) continue;
    // other processes may use another element order
    bool alike = options_.trainers == nullptr || first->layout() == nullptr;
    for (size_t d = 1; d < slot.parts.size() && part(d) != nullptr; ++d) {
      const Layout* const a = first->layout().get();
      const Layout* const b = part(d)->tensor->layout().get();
      alike = alike && (a == b || (a != nullptr && b != nullptr && a->same_as(*b)));
    }
    for (size_t d = 0; d < slot.parts.size(); ++d) {
      ExchangePart* const own = part(d);
      if (own == nullptr || own->tensor == nullptr) continue;
      Tensor* used = own->tensor;
      if (!alike && used->layout() != nullptr) {
        slot.plain[d].resize(slot.parts[d].size());
        used = &slot.plain[d][i];
        MILLRACE_RETURN_IF_ERROR(copy_plain(*own->tensor, *used));
      }
      own->data = used->raw();
      own->count = used->storage_bytes() / dtype_size(used->dtype());
    }
  }
  return Ok();
}

// Called by the last device to arrive; checks the parts of all.
Status ExchangeGroup::prepare(Slot& slot) {
  slot.done.store(0, std::memory_order_relaxed);
  slot.copied.store(0, std::memory_order_relaxed);
  if (slot.spec.kind == ExchangeKind::kGatherRows) {
    slot.chunks = options_.devices;
    return Ok();
  }
  MILLRACE_RETURN_IF_ERROR(find_memory(slot));
  const std::vector<ExchangePart>& first = slot.parts[0];
  for (size_t d = 1; d < slot.parts.size(); ++d) {
    const std::vector<ExchangePart>& parts = slot.parts[d];
    const bool fits = slot.dtypes[d] == slot.dtypes[0] &&
                      std::equal(first.begin(), first.end(), parts.begin(), parts.end(),
                                 [](const auto& a, const auto& b) { return a.count == b.count; });
    if (fits) continue;
    const auto counts = [](const std::vector<ExchangePart>& of) {
      std::vector<int64_t> result;
      for (const ExchangePart& part : of) result.push_back(part.count);
      return fmt::format("[{}]", fmt::join(result, ", "));
    };
    return Status(
        StatusCode::kExecution,
        fmt::format("exchange {}: device {} contributes {} elements of {}, device 0 {} of {}",
                    slot.number, d, counts(parts), dtype_name(slot.dtypes[d]), counts(first),
                    dtype_name(slot.dtypes[0])));
  }
  if (slot.spec.on_devices) {
    slot.chunks = options_.devices;
    return Ok();
  }
  slot.starts.clear();
  slot.elements = 0;
  for (const ExchangePart& part : first) {
    slot.starts.push_back(slot.elements);
    slot.elements += part.count;
  }
  slot.chunk = std::max<int64_t>(kChunkBytes / dtype_size(slot.dtypes[0]), 1);
  slot.chunks = (slot.elements + slot.chunk - 1) / slot.chunk;
  const auto devices = static_cast<int64_t>(slot.shares.size());
  for (int64_t d = 0; d < devices; ++d) {
    Share& share = slot.shares[static_cast<size_t>(d)];
    share.next.store(slot.chunks * d / devices, std::memory_order_relaxed);
    share.end = slot.chunks * (d + 1) / devices;
  }
  return Ok();
}

void ExchangeGroup::help_pending(int device) {
  for (const int number : pending_[static_cast<size_t>(device)])
    help(*slots_[static_cast<size_t>(number)], device);
}

// Processes chunks until none is left; false if the exchange is not ready yet.
bool ExchangeGroup::help(Slot& slot, int device) {
  if (!slot.is_ready(device)) return false;
  if (slot.spec.kind == ExchangeKind::kGatherRows || slot.spec.on_devices) return true;
  const size_t count = slot.shares.size();
  for (size_t k = 0; k < count; ++k) {
    Share& share = slot.shares[(static_cast<size_t>(device) + k) % count];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= share.end) break;
      if (Status status = combine(slot, chunk); !status.ok()) report(std::move(status));
      if (slot.done.fetch_add(1, std::memory_order_seq_cst) + 1 == slot.chunks) wake();
    }
  }
  return true;
}

Status ExchangeGroup::combine(Slot& slot, int64_t chunk) {
  const DType dtype = slot.dtypes[0];
  const int64_t size = dtype_size(dtype);
  int64_t begin = chunk * slot.chunk;
  const int64_t end = std::min(begin + slot.chunk, slot.elements);
  auto part = static_cast<size_t>(std::upper_bound(slot.starts.begin(), slot.starts.end(), begin) -
                                  slot.starts.begin() - 1);
  const auto root = static_cast<size_t>(std::max(slot.spec.root, 0));
  for (; begin < end; ++part) {
    const int64_t offset = begin - slot.starts[part];
    const int64_t count = std::min(end - begin, slot.parts[0][part].count - offset);
    if (count <= 0) continue;
    const auto at = [&](size_t device) { return slot.parts[device][part].data + offset * size; };
    llvm::SmallVector<const std::byte*, 8> parts;
    llvm::SmallVector<std::byte*, 8> results;
    for (size_t d = 0; d < slot.parts.size(); ++d) {
      if (slot.spec.kind != ExchangeKind::kBroadcast || d == root) parts.push_back(at(d));
      if (slot.spec.kind == ExchangeKind::kAllReduce ||
          (slot.spec.kind == ExchangeKind::kReduce) == (d == root))
        results.push_back(at(d));
    }
    if (slot.spec.kind == ExchangeKind::kBroadcast) {
      for (std::byte* const result : results)
        std::memcpy(result, parts[0], static_cast<size_t>(count * size));
    } else {
      MILLRACE_RETURN_IF_ERROR(kernels::sum_parts(dtype, parts, results, count));
    }
    begin += count;
  }
  return Ok();
}

Status ExchangeGroup::end(int device, int exchange) {
  Slot& slot = *slots_[static_cast<size_t>(exchange)];
  while (!help(slot, device)) {
    help_pending(device);
    MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.is_ready(device); }));
  }
  MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.is_done(); }));
  if (failed()) return cancelled();
  std::erase(pending_[static_cast<size_t>(device)], exchange);
  if (options_.trainers != nullptr) MILLRACE_RETURN_IF_ERROR(finish_with_trainers(slot, device));
  slot.take_plain(device);
  return Ok();
}

// Waits until all devices have arrived, and does work that is left meanwhile.
Status ExchangeGroup::wait_for_all(Slot& slot, int device) {
  while (!slot.is_ready(device)) {
    help_pending(device);
    MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.is_ready(device); }));
  }
  return Ok();
}

// Ends an exchange in which every device has one chunk, when all have processed theirs.
Status ExchangeGroup::leave_together(Slot& slot, int device) {
  if (slot.done.fetch_add(1, std::memory_order_seq_cst) + 1 == slot.chunks) wake();
  MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.is_done(); }));
  if (failed()) return cancelled();
  std::erase(pending_[static_cast<size_t>(device)], slot.number);
  return Ok();
}

Status ExchangeGroup::end_on_device(int device, int exchange, llvm::function_ref<Status()> start,
                                    llvm::function_ref<Status()> finish) {
  Slot& slot = *slots_[static_cast<size_t>(exchange)];
  MILLRACE_RETURN_IF_ERROR(wait_for_all(slot, device));
  MILLRACE_RETURN_IF_ERROR(start());
  MILLRACE_RETURN_IF_ERROR(leave_together(slot, device));
  return finish();
}

// Several parts are sent as one, because a transfer costs more than two copies.
Status ExchangeGroup::sum_over_trainers(Slot& slot, const std::vector<ExchangePart>& parts) {
  const DType dtype = slot.dtypes[0];
  if (parts.size() == 1)
    return options_.trainers->all_reduce(dtype, parts[0].data, parts[0].count, slot.spec.ring);
  joined_.resize(static_cast<size_t>(slot.elements * dtype_size(dtype)));
  const auto bytes = [&](const ExchangePart& part) {
    return static_cast<size_t>(part.count * dtype_size(dtype));
  };
  std::byte* at = joined_.data();
  for (const ExchangePart& part : parts) {
    if (part.count > 0) std::memcpy(at, part.data, bytes(part));
    at += bytes(part);
  }
  MILLRACE_RETURN_IF_ERROR(
      options_.trainers->all_reduce(dtype, joined_.data(), slot.elements, slot.spec.ring));
  at = joined_.data();
  for (const ExchangePart& part : parts) {
    if (part.count > 0) std::memcpy(part.data, at, bytes(part));
    at += bytes(part);
  }
  return Ok();
}

// Only device 0 communicates with the other processes, so that all of them exchange in the same
// order.
Status ExchangeGroup::finish_with_trainers(Slot& slot, int device) {
  if (slot.spec.kind == ExchangeKind::kBroadcast) return Ok();
  const auto root = static_cast<size_t>(std::max(slot.spec.root, 0));
  const std::vector<ExchangePart>& source = slot.parts[root];
  const int64_t round = slot.round(device);
  if (device == 0) {
    if (Status status = sum_over_trainers(slot, source); !status.ok()) {
      report(status);
      return status;
    }
    slot.summed.store(round, std::memory_order_seq_cst);
    wake();
  }
  MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.summed.load() == round; }));
  if (slot.spec.kind == ExchangeKind::kReduce) return Ok();
  for (size_t i = 0; i < source.size(); ++i) {
    const ExchangePart& to = slot.parts[static_cast<size_t>(device)][i];
    if (to.data == source[i].data) continue;
    std::memcpy(to.data, source[i].data,
                static_cast<size_t>(to.count * dtype_size(slot.dtypes[0])));
  }
  if (slot.copied.fetch_add(1, std::memory_order_seq_cst) + 1 == options_.devices) wake();
  return wait(device, slot, [&] { return slot.copied.load() >= options_.devices; });
}

// Concatenates the rows of the devices, then of the processes; devices copy them from device 0.
Status ExchangeGroup::join_over_trainers(Slot& slot, int device, bool gets, SelectedRows& all) {
  const int64_t round = slot.round(device);
  if (device == 0) {
    slot.all_rows = SelectedRows();
    MILLRACE_RETURN_IF_ERROR(join_rows(slot.rows, slot.all_rows));
    MILLRACE_RETURN_IF_ERROR(options_.trainers->gather_rows(slot.all_rows));
    slot.summed.store(round, std::memory_order_seq_cst);
    wake();
  }
  MILLRACE_RETURN_IF_ERROR(wait(device, slot, [&] { return slot.summed.load() == round; }));
  if (!gets) return Ok();
  all.rows = slot.all_rows.rows;
  all.height = slot.all_rows.height;
  return all.value.copy_from(slot.all_rows.value);
}

Status ExchangeGroup::end_rows(int device, int exchange, SelectedRows& rows) {
  Slot& slot = *slots_[static_cast<size_t>(exchange)];
  MILLRACE_RETURN_IF_ERROR(wait_for_all(slot, device));
  SelectedRows all;
  const bool gets = slot.spec.root < 0 || slot.spec.root == device;
  Status joined;
  if (options_.trainers != nullptr) {
    joined = join_over_trainers(slot, device, gets, all);
  } else if (gets) {
    joined = join_rows(slot.rows, all);
  }
  if (!joined.ok()) {
    report(joined);
    return joined;
  }
  MILLRACE_RETURN_IF_ERROR(leave_together(slot, device));
  if (gets) rows = std::move(all);
  return Ok();
}

}  // namespace millrace::executor
