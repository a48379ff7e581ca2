#pragma once

namespace millrace::tools {

/// Configures the allocator (mimalloc, if the build found it) for a process that allocates hundreds
/// of megabytes of small objects and then exits: it uses large pages and returns no memory to the
/// system. Must be called first in main(). Does nothing in a build without mimalloc.
void tune_allocator();

}  // namespace millrace::tools
