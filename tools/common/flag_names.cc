#include "tools/common/flag_names.h"

#include <string>
#include <string_view>

namespace millrace::tools {
namespace {

struct FieldFlag {
  std::string_view field;
  std::string_view flag;
};

// The fields that messages of jobs/ name.
constexpr FieldFlag kFieldFlags[] = {
    {"ending.model", "--save-model"},
    {"ending.model_program", "--model-program"},
    {"ending.save_programs", "--save-programs"},
    {"files.load_program", "--load-program"},
    {"files.params", "--params"},
    {"files.slices", "--slices"},
    {"options.allow_pipe_command", "--allow-pipe-command"},
    {"options.beside", "--beside"},
    {"options.block", "--block"},
    {"options.check_against", "--check-against"},
    {"options.check_nan", "--check-nan"},
    {"options.columns", "--columns"},
    {"options.data", "--data"},
    {"options.divide", "--divide"},
    {"options.drop_last", "--drop-last"},
    {"options.dump_folder", "--dump-dir"},
    {"options.dump_interval", "--dump-interval"},
    {"options.files", "--files"},
    {"options.folder", "--checkpoint-dir"},
    {"options.from", "--from"},
    {"options.in_memory", "--dataset memory"},
    {"options.last_good", "--last-good"},
    {"options.lods", "--lod"},
    {"options.model_dir", "--model-dir"},
    {"options.op_table", "--op-profile"},
    {"options.profile", "--profile"},
    {"options.program", "--program"},
    {"options.rank", "--rank"},
    {"options.replace", "--force"},
    {"options.reshuffle_epochs", "--reshuffle-epochs"},
    {"options.resume", "--resume"},
    {"options.slices", "--slices"},
    {"options.slots", "--slots"},
    {"options.step", "--step"},
    {"options.steps_file", "--feed-steps"},
    {"options.trainer", "--trainer-id"},
    {"options.unique_id", "--unique-id"},
    {"options.values", "--feed"},
    {"options.workers", "--worker-threads"},
    {"runtime.rings", "--rank and --endpoints"},
    {"service.elastic", "--elastic"},
    {"service.snapshot_every", "--snapshot-every"},
    {"service.snapshot_interval", "--snapshot-interval-ms"},
    {"service.snapshot_root", "--snapshot-dir"},
    {"settings.devices", "--devices"},
    {"settings.trainer", "--trainer-id"},
    {"settings.workers", "--worker-threads"},
    {"set options.allow_original", "convert it with: checkpoint convert --to checkpoint"},
};

bool is_part_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A field must be a word of the message: what a message quotes, such as the name of a file, stays.
bool is_word(std::string_view text, size_t at, size_t size) {
  const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '(';
  const size_t end = at + size;
  return begins && (end == text.size() || !is_part_of_name(text[end]));
}

std::string name_flags(std::string text) {
  for (const auto& [field, flag] : kFieldFlags) {
    size_t at = 0;
    while ((at = text.find(field, at)) != std::string::npos) {
      if (is_word(text, at, field.size())) text.replace(at, field.size(), flag);
      ++at;
    }
  }
  return text;
}

}  // namespace

Status with_flags(const Status& status) {
  if (status.ok()) return status;
  Status out = Status(status.code(), name_flags(status.message())).at(status.location());
  if (!status.hint().empty()) out = std::move(out).with_hint(name_flags(status.hint()));
  for (const std::string& note : status.notes()) out = std::move(out).with_note(name_flags(note));
  return out;
}

}  // namespace millrace::tools
