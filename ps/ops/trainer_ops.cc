#include "ps/ops/trainer_ops.h"

namespace millrace::ps {

void add_trainer_controls(executor::ControlRegistry& registry,
                          const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                          const std::shared_ptr<SavedParts>& saved) {
  add_transfer_controls(registry, link);
  add_lookup_controls(registry, link);
  add_typed_table_controls(registry, link);
  add_saving_controls(registry, link, files_root, saved);
}

}  // namespace millrace::ps
