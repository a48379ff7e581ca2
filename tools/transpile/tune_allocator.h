#pragma once

namespace millrace::tools {

/// Prepares the allocator (mimalloc where the build has found it) for a process that makes hundreds
/// of megabytes of small things once and ends: large pages, and nothing is given back on the way.
/// To be called first in main(); a build without mimalloc does nothing.
void tune_allocator();

}  // namespace millrace::tools
