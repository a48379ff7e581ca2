#include "executor/parallel/shared_updates.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"
#include "kernels/cpu/collective/sum_parts.h"
#include "kernels/cpu/layouts.h"

namespace millrace::executor {
namespace {

constexpr size_t kSharedUpdatesCacheLine = 64;
// Unit in which devices claim work.
constexpr int64_t kUpdateChunkBytes = int64_t{64} << 10U;
// Summed, updated and written together; with the states it fits the L1 cache.
constexpr int64_t kBlockBytes = int64_t{4} << 10U;

}  // namespace

// Chunks that one device processes until others run out of work.
struct alignas(kSharedUpdatesCacheLine) SharedUpdates::Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// One update. Rounds count its uses in a run, which may repeat the program.
struct SharedUpdates::Slot {
  explicit Slot(int update, int devices)
      : number(update),
        own(static_cast<size_t>(devices)),
        states(static_cast<size_t>(devices)),
        grads(static_cast<size_t>(devices)),
        params(static_cast<size_t>(devices)),
        shares(static_cast<size_t>(devices)),
        rounds(static_cast<size_t>(devices)) {}

  const int number;
  std::vector<kernels::SharedUpdate> own;             ///< by device
  std::vector<llvm::SmallVector<Tensor*, 3>> states;  ///< by device
  std::vector<const std::byte*> grads;                ///< by device, as are params
  std::vector<std::byte*> params;
  std::vector<Share> shares;
  /// By device: number of times it has arrived. Written by the device, read by others only for
  /// messages.
  std::vector<std::atomic<int64_t>> rounds;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int64_t chunk = 1;  ///< elements
  int64_t chunks = 0;
  int64_t work = 0;    ///< number of chunks for all devices together
  bool apart = false;  ///< every device computes the whole update

  alignas(kSharedUpdatesCacheLine) std::atomic<int64_t> arrived{0};  ///< arrivals of all rounds
  alignas(kSharedUpdatesCacheLine) std::atomic<int64_t> ready{
      0};  ///< last round in which all devices have arrived
  alignas(kSharedUpdatesCacheLine) std::atomic<int64_t> done{0};  ///< chunks of this round

  [[nodiscard]] bool is_done() const { return done.load(std::memory_order_seq_cst) >= work; }
};

SharedUpdates::SharedUpdates(ExchangeGroup& group, int updates)
    : group_(group), open_(static_cast<size_t>(group.devices())) {
  for (int i = 0; i < updates; ++i) slots_.push_back(std::make_unique<Slot>(i, group.devices()));
}

SharedUpdates::~SharedUpdates() = default;

void SharedUpdates::reset() {
  for (const std::unique_ptr<Slot>& slot : slots_) {
    slot->arrived = 0;
    slot->ready = 0;
    slot->done = 0;
    for (std::atomic<int64_t>& round : slot->rounds) round = 0;
  }
  for (std::vector<int>& open : open_) open.clear();
  begun_ = false;
}

Status SharedUpdates::waited_too_long(int device, const Slot& slot) const {
  std::vector<size_t> missing;
  for (size_t other = 0; other < slot.rounds.size(); ++other) {
    if (slot.rounds[other].load() < slot.rounds[static_cast<size_t>(device)].load())
      missing.push_back(other);
  }
  return {StatusCode::kDistributed,
          fmt::format(
              "device {} has waited {} ms for shared update {}; {}", device, group_.timeout_ms(),
              slot.number,
              missing.empty()
                  ? std::string("all devices have arrived, but have not finished")
                  : fmt::format("devices that have not arrived: {}", fmt::join(missing, ", ")))};
}

Status SharedUpdates::check_alike(const Slot& slot) {
  const Tensor& first = *slot.own[0].param;
  for (size_t d = 0; d < slot.own.size(); ++d) {
    for (const Tensor* const tensor : {slot.own[d].param, slot.own[d].grad}) {
      if (tensor->numel() == first.numel() && tensor->dtype() == first.dtype()) continue;
      return Status(StatusCode::kExecution,
                    fmt::format("shared update {}: device {} contributes {}, device 0 updates {}",
                                slot.number, d, describe(*tensor), describe(first)));
    }
  }
  return Ok();
}

// Makes all devices share the states of device 0.
Status SharedUpdates::share_states(Slot& slot, kernels::CpuDevice& cpu) {
  const kernels::LayoutPtr layout = slot.own[0].param->layout();
  for (size_t i = 0; i < slot.states[0].size(); ++i) {
    Tensor& first = *slot.states[0][i];
    MILLRACE_RETURN_IF_ERROR(kernels::bring_to(cpu, first, layout));
    for (size_t d = 1; d < slot.states.size(); ++d) {
      Tensor& other = *slot.states[d][i];
      if (!other.shares_memory_with(first) || !kernels::same_order(other.layout(), layout))
        other = first.share();
    }
  }
  return Ok();
}

Status SharedUpdates::separate_states(Slot& slot) {
  for (size_t d = 1; d < slot.states.size(); ++d) {
    for (size_t i = 0; i < slot.states[d].size(); ++i) {
      Tensor& own = *slot.states[d][i];
      if (own.shares_memory_with(*slot.states[0][i])) {
        MILLRACE_ASSIGN_OR_RETURN(own, slot.states[0][i]->clone());
      }
    }
  }
  return Ok();
}

// Called by the last device to arrive, while the others wait.
Status SharedUpdates::prepare(Slot& slot, kernels::CpuDevice& cpu) {
  MILLRACE_RETURN_IF_ERROR(check_alike(slot));
  const Tensor& first = *slot.own[0].param;
  const auto follows = [&](const Tensor* tensor) { return tensor->dims() == first.dims(); };
  bool any_order = !kernels::is_padded(first);
  for (size_t d = 0; d < slot.own.size(); ++d) {
    any_order = any_order && follows(slot.own[d].param) && follows(slot.own[d].grad) &&
                std::all_of(slot.states[d].begin(), slot.states[d].end(), follows);
    slot.apart = slot.apart || slot.own[d].rate != slot.own[0].rate;
  }
  const kernels::LayoutPtr layout = any_order ? first.layout() : nullptr;
  for (const kernels::SharedUpdate& own : slot.own) {
    MILLRACE_RETURN_IF_ERROR(kernels::bring_to(cpu, *own.param, layout));
    MILLRACE_RETURN_IF_ERROR(kernels::bring_to(cpu, *own.grad, layout));
  }
  if (slot.apart) {
    MILLRACE_RETURN_IF_ERROR(separate_states(slot));
    for (const auto& states : slot.states) {
      for (Tensor* const state : states)
        MILLRACE_RETURN_IF_ERROR(kernels::bring_to(cpu, *state, layout));
    }
  } else {
    MILLRACE_RETURN_IF_ERROR(share_states(slot, cpu));
  }
  const auto devices = static_cast<int64_t>(slot.own.size());
  for (size_t d = 0; d < slot.own.size(); ++d) {
    slot.grads[d] = slot.own[d].grad->raw();
    slot.params[d] = slot.own[d].param->raw();
  }
  slot.dtype = first.dtype();
  slot.elements = first.numel();
  slot.chunk = kUpdateChunkBytes / dtype_size(slot.dtype);
  slot.chunks = (slot.elements + slot.chunk - 1) / slot.chunk;
  slot.work = slot.apart ? slot.chunks * devices : slot.chunks;
  slot.done.store(0, std::memory_order_relaxed);
  for (int64_t d = 0; d < devices; ++d) {
    Share& share = slot.shares[static_cast<size_t>(d)];
    share.next.store(slot.apart ? 0 : slot.chunks * d / devices, std::memory_order_relaxed);
    share.end = slot.apart ? slot.chunks : slot.chunks * (d + 1) / devices;
  }
  return Ok();
}

Status SharedUpdates::meet(int device, kernels::CpuDevice& cpu, const kernels::SharedUpdate& own) {
  if (group_.failed()) return {StatusCode::kDistributed, "cancelled: another device has failed"};
  Slot& slot = *slots_[static_cast<size_t>(own.number)];
  const auto at = static_cast<size_t>(device);
  slot.own[at] = own;
  slot.states[at].assign(own.states.begin(), own.states.end());
  const int64_t round = slot.rounds[at].load(std::memory_order_relaxed) + 1;
  slot.rounds[at].store(round, std::memory_order_relaxed);
  open_[at].push_back(own.number);
  if (slot.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      round * static_cast<int64_t>(slot.own.size())) {
    if (Status status = prepare(slot, cpu); !status.ok()) {
      group_.report(status);
      return status;
    }
    begun_.store(true, std::memory_order_release);
    slot.ready.store(round, std::memory_order_seq_cst);
    group_.wake();
    return Ok();
  }
  group_.help_pending(device);
  return group_.wait_until([&] { return slot.ready.load(std::memory_order_seq_cst) == round; },
                           [&] { return waited_too_long(device, slot); });
}

void SharedUpdates::update_chunk(const Slot& slot, size_t device, int64_t chunk,
                                 kernels::UpdateGroup::Update update) {
  const int64_t size = dtype_size(slot.dtype);
  const int64_t end = std::min((chunk + 1) * slot.chunk, slot.elements);
  alignas(kSharedUpdatesCacheLine) std::array<std::byte, kBlockBytes> sum;
  std::byte* const result = sum.data();
  llvm::SmallVector<const std::byte*, 8> parts(slot.grads.size());
  for (int64_t begin = chunk * slot.chunk; begin < end;) {
    const int64_t count = std::min(kBlockBytes / size, end - begin);
    for (size_t d = 0; d < parts.size(); ++d) parts[d] = slot.grads[d] + begin * size;
    (void)kernels::sum_parts(slot.dtype, parts, result, count);  // the type has been checked
    update(begin, count, result);
    const std::byte* const updated = slot.params[device] + begin * size;
    for (size_t d = 0; d < slot.params.size() && !slot.apart; ++d) {
      std::byte* const copy = slot.params[d] + begin * size;
      if (copy != updated) std::memcpy(copy, updated, static_cast<size_t>(count * size));
    }
    begin += count;
  }
}

void SharedUpdates::count_done(Slot& slot) {
  if (slot.done.fetch_add(1, std::memory_order_seq_cst) + 1 == slot.work) group_.wake();
}

void SharedUpdates::take_chunks(Slot& slot, size_t device, kernels::UpdateGroup::Update update) {
  const size_t others = slot.apart ? 1 : slot.shares.size();
  for (size_t k = 0; k < others; ++k) {
    Share& share = slot.shares[(device + k) % slot.shares.size()];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= share.end) break;
      update_chunk(slot, device, chunk, update);
      count_done(slot);
    }
  }
}

Status SharedUpdates::apply(int device, kernels::CpuDevice& cpu, int number,
                            kernels::UpdateGroup::Update update) {
  Slot& slot = *slots_[static_cast<size_t>(number)];
  cpu.parallel_for(std::min<int64_t>(cpu.threads(), slot.chunks), 1, [&](int64_t, int64_t) {
    take_chunks(slot, static_cast<size_t>(device), update);
  });
  return wait_each_ ? wait_done(device, slot) : Ok();
}

Status SharedUpdates::wait_done(int device, Slot& slot) {
  return group_.wait_until([&] { return slot.is_done(); },
                           [&] { return waited_too_long(device, slot); });
}

Status SharedUpdates::finish(int device) {
  std::vector<int>& open = open_[static_cast<size_t>(device)];
  for (const int number : open)
    MILLRACE_RETURN_IF_ERROR(wait_done(device, *slots_[static_cast<size_t>(number)]));
  open.clear();
  return Ok();
}

}  // namespace millrace::executor
