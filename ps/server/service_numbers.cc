#include <algorithm>
#include <limits>
#include <shared_mutex>
#include <string>

#include <fmt/format.h>

#include "ps/server/service.h"

// Metrics of a server, for Prometheus; names are those of design/user_expectations.md.
namespace millrace::ps {
namespace {

double seconds_between(Clock::time_point then, Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

}  // namespace

void Service::publish() {
  if (metrics_ == nullptr) return;
  const std::string server = core_->plan.endpoint;
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics_->counter(name, help, {{"server", server}}).set(static_cast<double>(value));
  };
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    metrics_->gauge(name, help, {{"server", server}}).set(value);
  };
  metrics_
      ->counter("millrace_step_total", "steps that were applied",
                {{"role", "server"}, {"rank", std::to_string(core_->plan.server)}})
      .set(static_cast<double>(steps_ != nullptr ? steps_->applied() : 0));
  counter("millrace_updates_applied_total", "numbered calls that were carried out", carried_out_);
  counter("millrace_updates_deduplicated_total", "repeats of such calls, which changed nothing",
          repeats_);
  counter("millrace_snapshots_total", "snapshots that were taken", snapshots_taken_);
  counter("millrace_snapshot_failures_total", "snapshots that could not be written",
          snapshots_failed_);
  gauge("millrace_snapshot_seconds", "time for which the last snapshot held the server up",
        snapshot_seconds_);
  gauge("millrace_snapshot_last_success_timestamp", "when the last snapshot was taken, unix time",
        std::chrono::duration<double>(snapshot_time_.time_since_epoch()).count());
  // the value itself has no meaning; only a change of it does
  gauge("millrace_ps_epoch", "lowest 32 bits of the number of this incarnation",
        static_cast<double>(core_->epoch.load() & 0xffffffffU));
  gauge("millrace_ps_calls_inside", "numbered calls that are under way", inside_);
  publish_trainers();
  publish_tables();
}

void Service::publish_trainers() {
  int alive = 0;
  int waiting = 0;
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = -1;
  const int64_t applied = steps_ != nullptr ? steps_->applied() : 0;
  for (int id = 0; id < core_->trainers.count(); ++id) {
    const Trainer& trainer = core_->trainers.at(id);
    const MetricLabels peer{{"peer", fmt::format("trainer {}", id)}};
    if (trainer.life != Trainer::Life::kAbsent)
      metrics_
          ->gauge("millrace_peer_last_seen_seconds", "time since the last call of a trainer", peer)
          .set(seconds_between(trainer.seen, core_->now()));
    metrics_->gauge("millrace_peer_step", "step that a trainer named last", peer)
        .set(static_cast<double>(trainer.step));
    if (trainer.life != Trainer::Life::kLive) continue;
    ++alive;
    if (steps_ != nullptr && trainer.sent > applied) ++waiting;
    first = std::min(first, trainer.step);
    last = std::max(last, trainer.step);
  }
  const MetricLabels server{{"server", core_->plan.endpoint}};
  metrics_->gauge("millrace_peers_alive", "trainers that train", server).set(alive);
  metrics_->gauge("millrace_ps_trainers_waiting", "trainers that have sent a step and wait", server)
      .set(waiting);
  metrics_
      ->gauge("millrace_staleness_steps", "steps from the slowest trainer to the fastest", server)
      .set(alive == 0 ? 0 : static_cast<double>(last - first));
}

// Tables are vars in which trainers look up rows. A var that is being written is skipped this time.
void Service::publish_tables() {
  double bytes = 0;
  int64_t vars = 0;
  for (const auto& entry : core_->vars()) {
    const ServerVar& var = entry.getValue();
    const std::shared_lock lock(*var.mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const auto* const rows = var.value->get_if<SelectedRows>();
    const Tensor* const tensor = rows != nullptr ? &rows->value : var.value->get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) continue;
    ++vars;
    bytes += static_cast<double>(tensor->bytes());
    const std::string name = entry.getKey().str();
    const bool is_table =
        std::any_of(core_->plan.sparse_params.begin(), core_->plan.sparse_params.end(),
                    [&](const auto& each) { return each.second == name; });
    if (!is_table && (rows == nullptr || core_->plan.grad_blocks.contains(name))) continue;
    metrics_->gauge("millrace_table_rows", "rows of a table", {{"table", name}})
        .set(static_cast<double>(tensor->rank() == 0 ? 0 : tensor->dim(0)));
    metrics_->gauge("millrace_table_bytes", "bytes of a table's rows", {{"table", name}})
        .set(static_cast<double>(tensor->bytes()));
  }
  metrics_->gauge("millrace_memory_bytes", "bytes of values", {{"kind", "vars"}}).set(bytes);
  metrics_->gauge("millrace_ps_vars", "vars that hold a value", {{"server", core_->plan.endpoint}})
      .set(static_cast<double>(vars));
}

}  // namespace millrace::ps
