#include "interchange/survey/program_kind.h"

#include "framework/block.h"
#include "framework/op.h"
#include "framework/views/summary.h"

namespace millrace::interchange {
namespace {

struct Traits {
  bool feeds = false;
  bool fetches = false;
  bool updates = false;
  bool gradients = false;
  bool reads = false;  // an op that does not talk reads something
  bool talks = false;  // with other processes
  bool serves = false;
  bool has_ops = false;
};

bool talks_to_others(llvm::StringRef type) {
  return type == "send" || type == "recv" || type == "send_barrier" || type == "fetch_barrier" ||
         type == "distributed_lookup_table" || type == "prefetch" || type == "geo_sgd" ||
         type == "heter_send" || type == "send_and_recv" || type.startswith("c_allreduce") ||
         type == "c_broadcast" || type == "gen_nccl_id" || type == "c_gen_nccl_id" ||
         type == "c_comm_init";
}

void look_at(const Op& op, Traits& traits) {
  const llvm::StringRef type = op.type();
  traits.has_ops = true;
  traits.feeds |= type == "feed";
  traits.fetches |= type == "fetch";
  traits.serves |=
      type == "listen_and_serv" || type == "fl_listen_and_serv" || type == "heter_listen_and_serv";
  const bool talks = talks_to_others(type);
  traits.talks |= talks;
  traits.updates |= op.find_input("Param") != nullptr && op.find_output("ParamOut") != nullptr;
  traits.gradients |= type.endswith("_grad");
  traits.reads |= !talks && !op.input_names().empty();
}

// Tag byte of the first field that the format of release 2.6 does not define; 0: there is none.
// Field 2 was the version message once, field 3 the map of releases 1.6 to 1.8.
constexpr char kField2 = (2 << 3) | 2;
constexpr char kField3 = (3 << 3) | 2;
char first_unknown_tag(const Program& program) {
  return program.unknown() == nullptr || program.unknown()->empty() ? '\0'
                                                                    : program.unknown()->front();
}

}  // namespace

const char* kind_text(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kInference:
      return "inference model";
    case ProgramKind::kForward:
      return "forward program";
    case ProgramKind::kTraining:
      return "training program";
    case ProgramKind::kStartup:
      return "startup program";
    case ProgramKind::kTrainer:
      return "trainer program";
    case ProgramKind::kServer:
      return "server program";
    case ProgramKind::kEmpty:
      return "empty program";
  }
  return "?";
}

ProgramKind kind_of(const Program& program) {
  Traits traits;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) look_at(op, traits);
  }
  if (!traits.has_ops) return ProgramKind::kEmpty;
  if (traits.serves) return ProgramKind::kServer;
  if (!traits.reads && !traits.feeds) return ProgramKind::kStartup;
  if (traits.talks) return ProgramKind::kTrainer;
  if (traits.updates || traits.gradients) return ProgramKind::kTraining;
  if (traits.fetches) return ProgramKind::kInference;
  return ProgramKind::kForward;
}

std::string release_of(const Program& program) {
  const int64_t version = program.version().value_or(0);
  if (version > 0) return version_text(version);
  if (program.has_op_versions() && !program.op_versions().empty()) return "2.x without a number";
  const char unknown = first_unknown_tag(program);
  if (unknown == kField3) return "1.6 to 1.8 without a number";
  if (unknown != kField2 && program.has_version()) return "1.6 or later without a number";
  return "1.5 or earlier";
}

}  // namespace millrace::interchange
