#pragma once

#include "framework/base/status.h"

namespace millrace {
class PsError;
}

namespace millrace::ps {

/// A failed status as the message that travels, and back; all fields are kept, but long texts are
/// cut. A code that this build does not know becomes kInternal.
void encode_status(const Status& status, PsError& error);
Status decode_status(const PsError& error);

}  // namespace millrace::ps
