#pragma once

namespace millrace::tools {

/// Runs a tool as main() does. What it throws outside of Tool::run(), where it has no memory for
/// its options, becomes an error and an exit code, and so does a lack of memory in functions that
/// must not throw. LLVM's containers throw, too, where they have no memory. \returns the exit code
/// for main()
int guarded_main(int (*tool)(int argc, char** argv), int argc, char** argv);

}  // namespace millrace::tools
