#pragma once

#include <string>

#include "ps/saving/distributed_save.h"

namespace millrace::jobs {

/// Splits the path of a folder to save to into the allowed root and a name below it; servers use
/// the name below their own root. \param files_root  the allowed root; if it is empty or does not
/// contain the path, the parent folder is used
ps::DistributedSaveOptions save_place(std::string path, const std::string& files_root);

}  // namespace millrace::jobs
