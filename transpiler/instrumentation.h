#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transpiler/pass_manager.h"

namespace millrace::transpiler {

/// Turns a program into text.
using PrintFn = std::function<std::string(const Program&)>;
/// Receives the output; called with whole lines.
using SinkFn = std::function<void(const std::string&)>;

/// Prints the program, and the startup program if there is one, after the named passes, each under
/// a line "# after 'x' (1 of 2): changed".
///
/// \param passes  names of passes; empty: all
/// Errors of the run: kInvalidArgument if the pipeline has no pass of a given name.
std::unique_ptr<PassInstrumentation> print_after(std::vector<std::string> passes, PrintFn print,
                                                 SinkFn sink);

/// Writes the input of the pipeline and the result of each pass into files of a folder:
/// 000-input.prog, 001-<pass>.prog, ... and the same with .startup.prog. pipeline.txt has the
/// pipeline, and failed.txt the error if there was one. Numbers have at least three digits.
///
/// The folder is created if it does not exist. Files of an earlier run are replaced.
/// Errors of the run: kIo naming the file.
std::unique_ptr<PassInstrumentation> dump_to_folder(std::string folder, PrintFn print);

}  // namespace millrace::transpiler
