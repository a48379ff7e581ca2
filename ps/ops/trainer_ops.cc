#include "ps/ops/trainer_ops.h"

#include "framework/op_attrs.h"

namespace millrace::ps {

Status check_trainer(TrainerLink& link, const kernels::KernelSetup& setup) {
  const int own = link.client().options().trainer;
  const int named = get_attr_or<int32_t>(setup.op(), "trainer_id", own);
  if (named == own) return Ok();
  return setup.error("attribute 'trainer_id' is {}, but this process is trainer {}", named, own);
}

void add_trainer_controls(executor::ControlRegistry& registry,
                          const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                          const std::shared_ptr<SavedParts>& saved) {
  add_transfer_controls(registry, link);
  add_lookup_controls(registry, link);
  add_typed_table_controls(registry, link);
  add_saving_controls(registry, link, files_root, saved);
}

}  // namespace millrace::ps
