#pragma once

#include <memory>
#include <vector>

#include "executor/parallel/options.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// The scopes of the devices. That of device 0 is the caller's; the others are inside it. If
/// variables are shared with another executor, each scope is inside the corresponding scope of that
/// executor.
struct DeviceScopes {
  std::vector<Scope*> scopes;                 ///< by device
  std::vector<std::unique_ptr<Scope>> owned;  ///< those that were created here
};

/// Creates the scopes and gives every device copies of the persistable vars that several devices
/// use. Vars that only one device uses, such as optimizer state in reduce mode, are not copied.
/// Errors: kResource.
StatusOr<DeviceScopes> make_device_scopes(Scope& scope,
                                          const std::vector<std::unique_ptr<Program>>& programs,
                                          const ParallelOptions& options);

}  // namespace millrace::executor
