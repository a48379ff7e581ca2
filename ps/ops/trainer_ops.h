#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/control.h"
#include "ps/client/trainer_link.h"
#include "ps/saving/saved_parts.h"

namespace millrace::ps {

/// Adds the ops by which trainer programs talk to servers: send, recv, their barriers, look-ups of
/// remote tables, and requests to save.
///
/// \param link        shared by all of them; one program runs at a time
/// \param files_root  folder for files that recv_save writes; empty: refused
/// \param saved       receives what checkpoint_notify had servers write; may be null
void add_trainer_controls(executor::ControlRegistry& registry,
                          const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                          const std::shared_ptr<SavedParts>& saved = nullptr);

// A function a file of ps/ops.
void add_transfer_controls(executor::ControlRegistry& registry,
                           const std::shared_ptr<TrainerLink>& link);
void add_lookup_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<TrainerLink>& link);
void add_typed_table_controls(executor::ControlRegistry& registry,
                              const std::shared_ptr<TrainerLink>& link);
void add_saving_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<TrainerLink>& link, const std::string& files_root,
                         const std::shared_ptr<SavedParts>& saved);

/// Errors: kInvalidProgram where the op names another trainer than this process is; the program is
/// then that of somebody else.
Status check_trainer(TrainerLink& link, const kernels::KernelSetup& setup);

/// True if what an op sends goes along with the send barrier behind it.
bool waits_for_send_barrier(const Op& op);

}  // namespace millrace::ps
