#pragma once

#include <string>

#include "framework/base/status.h"
#include "ps/saving/distributed_save.h"

namespace millrace::jobs {

/// Splits the path of a folder to save to into the allowed root and a name below it; servers use
/// the name below their own root.
/// \param path        absolute, or relative to the working folder
/// \param files_root  the allowed root; if it is empty, the parent folder of the path is used
/// Errors: kInvalidArgument for a path that is not below the root, symbolic links resolved.
StatusOr<ps::DistributedSaveOptions> save_place(std::string path, const std::string& files_root);

}  // namespace millrace::jobs
