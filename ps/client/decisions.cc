#include "ps/client/decisions.h"

#include <algorithm>

namespace millrace::ps {

using Standing = protocol::HelloAnswer::Standing;

AfterRestart after_restart(const protocol::HelloAnswer& answer, int64_t sent, bool has_last_sent) {
  const int64_t ahead = answer.sent - sent;
  if (answer.standing == Standing::kMustGoBack || ahead < -1 || ahead > 1)
    return AfterRestart::kMustSettle;
  if (ahead == 0) return AfterRestart::kRepeat;
  if (ahead > 0) return AfterRestart::kWasSent;
  return has_last_sent ? AfterRestart::kSendAgain : AfterRestart::kMustSettle;
}

Settling plan_settling(llvm::ArrayRef<protocol::HelloAnswer> answers, bool again, int64_t ahead) {
  const auto* const oldest = std::ranges::min_element(answers, {}, &protocol::HelloAnswer::sent);
  Settling plan{.step = oldest->sent, .reason = static_cast<size_t>(oldest - answers.begin())};
  for (const protocol::HelloAnswer& answer : answers) {
    plan.joins |= answer.standing == Standing::kJoins;
    plan.newest = std::max(plan.newest, answer.applied);
  }
  if (plan.joins) plan.step = plan.newest + ahead;
  plan.servers_agree =
      !again && !plan.joins && std::ranges::all_of(answers, [&](const auto& answer) {
        return answer.sent == plan.step && answer.applied == plan.step &&
               answer.standing != Standing::kMustGoBack;
      });
  return plan;
}

int64_t last_step_of(llvm::ArrayRef<protocol::LossAnswer> answers) {
  int64_t steps = -1;
  bool decided = false;
  for (const protocol::LossAnswer& answer : answers) {
    if (decided && !answer.decided) continue;
    steps = answer.decided && !decided ? answer.steps : std::max(steps, answer.steps);
    decided |= answer.decided;
  }
  return steps;
}

}  // namespace millrace::ps
