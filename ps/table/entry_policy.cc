#include "ps/table/entry_policy.h"

#include "framework/base/errors.h"
#include "ps/table/number_text.h"

namespace millrace::ps {

StatusOr<EntryPolicy> parse_entry(std::string_view text) {
  EntryPolicy policy;
  if (text.empty() || text == "none") return policy;
  const size_t cut = text.find_first_of(":&");
  const std::string_view name = text.substr(0, cut);
  const std::string_view rest = cut == std::string_view::npos ? "" : text.substr(cut + 1);
  if (name == "count_filter_entry" || name == "count_filter") {
    policy.kind = EntryPolicy::Kind::kCountFilter;
    if (read_number(rest, policy.count) && policy.count >= 0) return policy;
    return InvalidArgument("entry '{}': expected an integer that is at least 0", text);
  }
  if (name == "probability_entry" || name == "probability") {
    policy.kind = EntryPolicy::Kind::kProbability;
    if (read_number(rest, policy.probability) && policy.probability > 0 && policy.probability < 1)
      return policy;
    return InvalidArgument("entry '{}': expected a probability between 0 and 1", text);
  }
  if (name == "show_click_entry") {
    policy.kind = EntryPolicy::Kind::kShowClick;
    const size_t colon = rest.find(':');
    policy.show_var = rest.substr(0, colon);
    if (colon != std::string_view::npos) policy.click_var = rest.substr(colon + 1);
    if (!policy.show_var.empty() && !policy.click_var.empty()) return policy;
    return InvalidArgument("entry '{}': expected the names of shows and clicks", text);
  }
  return InvalidArgument(
      "entry '{}': expected one of none, count_filter_entry, probability_entry, show_click_entry",
      text);
}

std::string entry_text(const EntryPolicy& policy) {
  switch (policy.kind) {
    case EntryPolicy::Kind::kCountFilter:
      return fmt::format("count_filter_entry:{}", policy.count);
    case EntryPolicy::Kind::kProbability:
      return fmt::format("probability_entry:{}", policy.probability);
    case EntryPolicy::Kind::kShowClick:
      return fmt::format("show_click_entry:{}:{}", policy.show_var, policy.click_var);
    default:
      return "none";
  }
}

}  // namespace millrace::ps
