#pragma once

#include "framework/base/status.h"

namespace millrace {
class PsError;
}

namespace millrace::ps {

/// Encodes a failed status for sending, and decodes it. All fields are kept, but long texts are
/// truncated. A code that this build does not know becomes kInternal.
void encode_status(const Status& status, PsError& error);
Status decode_status(const PsError& error);

}  // namespace millrace::ps
