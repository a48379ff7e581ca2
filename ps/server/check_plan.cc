#include "ps/server/check_plan.h"

#include <map>
#include <string>

#include <fmt/format.h>

#include "framework/text_form/print.h"

namespace millrace::ps {
namespace {

Status differs(int trainer, const ServerCore& core, const std::string& told,
               const std::string& own) {
  return Status(StatusCode::kDistributed,
                fmt::format("trainer {} and server {} at {} belong to different programs: the "
                            "trainer {}, the server {}",
                            trainer, core.plan.server, core.plan.endpoint, told, own))
      .with_hint("start all processes from the output of one run of transpile-program");
}

// Types of the vars of the server, by the names that facts have. Vars of unknown dims are left out.
std::map<std::string, std::string> types_of(const ServerCore& core) {
  std::map<std::string, std::string> types;
  for (const auto& entry : core.vars()) {
    const Var* const var = entry.getValue().var;
    if (var == nullptr || !var->spec().has_tensor() || var->dims().empty()) continue;
    types[print_name(entry.getKey())] = type_fact(var->dtype(), var->dims());
  }
  return types;
}

}  // namespace

Status check_plan(const ServerCore& core, int trainer, const PlanFacts& told) {
  if (told.empty()) return Ok();
  const std::map<std::string, std::string> types = types_of(core);
  for (const std::string& fact : told) {
    ReceivedFact received;
    if (!parse_received(fact, received)) continue;
    const auto own = types.find(received.name);
    if (own == types.end() || own->second.empty() || own->second == received.type) continue;
    return differs(trainer, core, fact, fmt::format("holds {} as {}", received.name, own->second));
  }
  return compare_plans(told, fmt::format("trainer {}", trainer), core.options.plan,
                       fmt::format("server {} at {}", core.plan.server, core.plan.endpoint));
}

}  // namespace millrace::ps
