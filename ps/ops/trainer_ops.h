#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/compiled_ops/control.h"
#include "ps/client/saved_parts.h"
#include "ps/client/trainer_link.h"

namespace millrace::ps {

/// Adds the ops by which trainer programs communicate with servers: send, recv, their barriers,
/// lookups of remote tables, and requests to save.
///
/// \param link        shared by all of these ops; one program runs at a time
/// \param files_root  folder below which recv_save writes files; empty: recv_save is refused
/// \param saved       receives the files that checkpoint_notify had servers write; may be null
void add_trainer_controls(executor::ControlRegistry& registry,
                          const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                          const std::shared_ptr<SavedParts>& saved = nullptr);

// One function per source file of ps/ops.
void add_transfer_controls(executor::ControlRegistry& registry,
                           const std::shared_ptr<TrainerLink>& link);
void add_lookup_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<TrainerLink>& link);
void add_typed_table_controls(executor::ControlRegistry& registry,
                              const std::shared_ptr<TrainerLink>& link);
void add_saving_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                         const std::shared_ptr<SavedParts>& saved);

/// Checks that the program belongs to this trainer. Errors: kInvalidProgram if the op names another
/// trainer than this process.
Status check_trainer(TrainerLink& link, const kernels::KernelSetup& setup);

/// True if the values that an op sends are sent with the send barrier that follows it.
bool waits_for_send_barrier(const Op& op);

}  // namespace millrace::ps
