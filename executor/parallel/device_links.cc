#include "executor/parallel/device_links.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace millrace::executor {

bool DeviceLinks::are_joined() const {
  return !stopped_.load() && std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank != nullptr && rank->state().ok();
  });
}

// The library is loaded for all devices before any of them waits for the others.
Status DeviceLinks::join(DeviceThreads& threads) {
  if (are_joined()) return Ok();
  leave(threads);
  std::vector<gpu::Collectives*> libraries;
  for (const std::shared_ptr<gpu::Context>& gpu : gpus_) {
    StatusOr<gpu::Collectives*> library = gpu->device().collectives();
    if (!library.ok())
      return std::move(library).status().with_note("for exchanges between the GPUs of a process");
    libraries.push_back(*library);
  }
  MILLRACE_ASSIGN_OR_RETURN(const gpu::CommunicatorId id, libraries.front()->make_id());
  std::vector<Status> statuses(gpus_.size());
  threads.run([&](int device) {
    const auto d = static_cast<size_t>(device);
    StatusOr<std::unique_ptr<gpu::Communicator>> rank =
        libraries[d]->join(id, {.rank = device,
                                .size = static_cast<int>(gpus_.size()),
                                .join_timeout_ms = timeout_ms_,
                                .timeout_ms = timeout_ms_,
                                .is_stopped = [this] { return stopped_.load(); }});
    if (rank.ok()) {
      ranks_[d] = *std::move(rank);
    } else {
      statuses[d] = std::move(rank).status();
      stopped_.store(true);
    }
  });
  for (size_t d = 0; d < statuses.size(); ++d) {
    if (!statuses[d].ok())
      return std::move(statuses[d]).with_note(fmt::format("device {} joins the others", d));
  }
  return Ok();
}

// A rank whose exchanges all succeeded waits for the others when it leaves, so they leave together.
void DeviceLinks::leave(DeviceThreads& threads) {
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank == nullptr; })) {
    stopped_.store(false);
    return;
  }
  const bool is_broken = !are_joined();
  threads.run([&](int device) {
    std::unique_ptr<gpu::Communicator>& rank = ranks_[static_cast<size_t>(device)];
    if (is_broken && rank != nullptr)
      rank->abort({StatusCode::kDistributed, "another device has failed"});
    rank.reset();
  });
  stopped_.store(false);
}

void DeviceLinks::abort(int device, const Status& reason) {
  stopped_.store(true);
  if (const auto& rank = ranks_[static_cast<size_t>(device)]; rank != nullptr) rank->abort(reason);
}

}  // namespace millrace::executor
