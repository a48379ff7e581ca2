#pragma once

/// The tools as functions. Each program <build>/tools/<name> is a main that calls one of them; the
/// installed program `millrace` holds all that use the common allocator, and is each of them by
/// name. Arguments and results are those of main().
namespace millrace::tools {

int checkpoint(int argc, char** argv);
int diff_program(int argc, char** argv);
int inspect_program(int argc, char** argv);
int job_report(int argc, char** argv);
int launch(int argc, char** argv);
int pserver(int argc, char** argv);
int run_program(int argc, char** argv);
int status(int argc, char** argv);
int transpile_program(int argc, char** argv);

}  // namespace millrace::tools
