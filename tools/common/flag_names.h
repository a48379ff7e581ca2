#pragma once

#include "framework/base/status.h"

namespace millrace::tools {

/// An error of the libraries in the words of the tools: fields of options ("options.columns") in
/// its message, hint and notes become the flags that set them ("--columns"). Other text stays.
Status with_flags(const Status& status);

}  // namespace millrace::tools
