#pragma once

#include <memory>
#include <vector>

#include "executor/parallel/options.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// The scopes of the devices. That of device 0 is the caller's own; the others stand inside it. If
/// variables are shared with another executor, each stands inside that one's.
struct DeviceScopes {
  std::vector<Scope*> scopes;                 ///< by device
  std::vector<std::unique_ptr<Scope>> owned;  ///< those that were made
};

/// Makes the scopes and gives every device copies of the persistable vars that several devices use.
/// What one device uses alone, such as the state of the optimizer in reduce mode, stays where it
/// is. Errors: kResource.
StatusOr<DeviceScopes> make_device_scopes(Scope& scope,
                                          const std::vector<std::unique_ptr<Program>>& programs,
                                          const ParallelOptions& options);

}  // namespace millrace::executor
