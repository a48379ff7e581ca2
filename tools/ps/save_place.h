#pragma once

#include <string>

#include "ps/saving/distributed_save.h"

namespace millrace::tools {

/// A folder to save to as a name below the one that files may be in; servers take the name below
/// theirs. \param files_root  that folder; empty, or one that does not have it: the one above it
ps::DistributedSaveOptions save_place(std::string path, const std::string& files_root);

}  // namespace millrace::tools
