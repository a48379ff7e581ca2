#include "ps/slices/plan_facts.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/text_form/print.h"

namespace millrace::ps {
namespace {

constexpr llvm::StringRef kReceives = "receives ";
constexpr llvm::StringRef kAs = " as ";
constexpr llvm::StringRef kTraining = "training: ";

std::set<std::string> common_facts(const PlanFacts& facts) {
  std::set<std::string> common;
  for (const std::string& fact : facts)
    if (is_common(fact)) common.insert(fact);
  return common;
}

// The first fact that only `some` have.
std::string first_only_in(const std::set<std::string>& some, const std::set<std::string>& others) {
  constexpr size_t kMostBytes = 400;
  for (const std::string& fact : some)
    if (!others.contains(fact)) return "'" + printable(fact.substr(0, kMostBytes)) + "'";
  return "nothing else";
}

}  // namespace

std::string type_fact(DType dtype, llvm::ArrayRef<int64_t> dims) {
  if (llvm::any_of(dims, [](int64_t dim) { return dim < 0; })) return {};
  const bool is_single = llvm::all_of(dims, [](int64_t dim) { return dim == 1; });
  return is_single ? fmt::format("{} [1]", dtype_name(dtype))
                   : fmt::format("{} [{}]", dtype_name(dtype), fmt::join(dims, ", "));
}

std::string received_fact(llvm::StringRef name, const std::string& type) {
  return fmt::format("{}{}{}{}", kReceives.str(), print_name(name), kAs.str(), type);
}

bool parse_received(llvm::StringRef line, ReceivedFact& fact) {
  if (!line.consume_front(kReceives)) return false;
  const size_t as = line.rfind(kAs);
  if (as == llvm::StringRef::npos) return false;
  fact.name = line.take_front(as).str();
  fact.type = line.drop_front(as + kAs.size()).str();
  return true;
}

std::string training_fact(const std::string& line) {
  return kTraining.str() + line;
}

bool is_training(llvm::StringRef fact) {
  return fact.startswith(kTraining);
}

bool is_common(llvm::StringRef fact) {
  return !fact.startswith(kReceives);
}

Status compare_plans(const PlanFacts& their_facts, const std::string& theirs,
                     const PlanFacts& our_facts, const std::string& ours) {
  const std::set<std::string> their_common = common_facts(their_facts);
  const std::set<std::string> our_common = common_facts(our_facts);
  if (their_common.empty() || our_common.empty() || their_common == our_common) return Ok();
  return Status(StatusCode::kDistributed,
                fmt::format("{} and {} belong to different distributions: {} has {}, {} has {}",
                            theirs, ours, theirs, first_only_in(their_common, our_common), ours,
                            first_only_in(our_common, their_common)))
      .with_hint("start all processes from the output of one run of transpile-program");
}

}  // namespace millrace::ps
