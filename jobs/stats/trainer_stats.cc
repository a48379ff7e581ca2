#include "jobs/stats/trainer_stats.h"

#include <cmath>

#include <llvm/ADT/StringSwitch.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"

namespace millrace::jobs {
namespace {

constexpr const char* kSchema = "millrace.trainer_stats";

enum class Transfer { kNone, kSend, kWait };

Transfer transfer_of(const Op& op) {
  return llvm::StringSwitch<Transfer>(op.type())
      .Cases("send", "split_byref", "split_selected_rows", "split_ids", Transfer::kSend)
      .Cases("recv", "send_barrier", "fetch_barrier", "prefetch", Transfer::kWait)
      .Cases("distributed_lookup_table", "send_and_recv", Transfer::kWait)
      .Default(Transfer::kNone);
}

// Lookups in a table on servers use the same op type as lookups in a local table.
bool looks_up_remotely(const Op& op) {
  const AttrValue* const remote = op.find_attr("remote_prefetch");
  const AttrValue* const servers = op.find_attr("epmap");
  return remote != nullptr && remote->kind() == AttrKind::kBool && remote->boolean() &&
         servers != nullptr && servers->kind() == AttrKind::kStrings && !servers->strings().empty();
}

}  // namespace

void TransferClock::before(const executor::CompiledOp& /*compiled*/) {
  start_ = Clock::now();
}

Status TransferClock::after(const executor::CompiledOp& compiled, Value* const* /*table*/) {
  const std::chrono::duration<double> took = Clock::now() - start_;
  if (trace_ != nullptr) {
    const auto end = ps::CallTrace::Clock::now();
    const auto begin = end - std::chrono::duration_cast<ps::CallTrace::Clock::duration>(took);
    const llvm::StringRef type = compiled.op->type();
    trace_->add_op({type.data(), type.size()}, begin, end);
  }
  const Transfer transfer = transfer_of(*compiled.op);
  if (transfer == Transfer::kSend) {
    send_ += took.count();
  } else if (transfer == Transfer::kWait || looks_up_remotely(*compiled.op)) {
    wait_ += took.count();
  }
  return Ok();
}

std::string stats_json(const TrainerStats& stats) {
  JsonWriter out;
  out.begin_object();
  out.member("schema", kSchema).member("version", 1);
  out.member("trainer", stats.trainer).member("loss_name", stats.loss_name);
  out.member("steps", stats.steps).member("examples", stats.examples);
  out.key("seconds").begin_object();
  out.member("all", stats.seconds).member("compute", stats.compute_seconds);
  out.member("send", stats.send_seconds).member("wait", stats.wait_seconds).end_object();
  out.key("losses").begin_array();
  for (const double loss : stats.losses) out.value(loss);
  out.end_array().end_object();
  return out.take();
}

StatusOr<TrainerStats> parse_stats_json(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("schema", "") != kSchema)
    return InvalidData("expected an object with \"schema\": \"{}\"", kSchema);
  TrainerStats stats;
  const char* member = "";
  try {
    const auto get = [&](const nlohmann::json& from, const char* name, auto& to) {
      member = name;
      from.at(name).get_to(to);
    };
    get(json, "trainer", stats.trainer);
    get(json, "loss_name", stats.loss_name);
    get(json, "steps", stats.steps);
    get(json, "examples", stats.examples);
    member = "seconds";
    const nlohmann::json& seconds = json.at("seconds");
    get(seconds, "all", stats.seconds);
    get(seconds, "compute", stats.compute_seconds);
    get(seconds, "send", stats.send_seconds);
    get(seconds, "wait", stats.wait_seconds);
    member = "losses";
    for (const nlohmann::json& loss : json.at("losses"))
      stats.losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  } catch (const nlohmann::json::exception&) {
    return InvalidData("member '{}' is missing or of another type than expected", member);
  }
  return stats;
}

}  // namespace millrace::jobs
