#pragma once

#include <string_view>

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

/// What each is for, as its help and the help of `millrace` say it.
inline constexpr std::string_view kCheckpointPurpose = "look after checkpoints and parameter files";
inline constexpr std::string_view kDiffProgramPurpose = "say where two programs differ";
inline constexpr std::string_view kInspectProgramPurpose = "print, draw and check a program";
inline constexpr std::string_view kJobReportPurpose =
    "write a page about a job of trainers and parameter servers that has run";
inline constexpr std::string_view kLaunchPurpose =
    "start the processes of a job, watch them, end them together";
inline constexpr std::string_view kPserverPurpose =
    "serve the parameters of a transpiled job to its trainers";
inline constexpr std::string_view kRunProgramPurpose = "run a program: inference, training, timing";
inline constexpr std::string_view kStatusPurpose = "ask the servers of a job what they are doing";
inline constexpr std::string_view kTranspileProgramPurpose =
    "rewrite a program: for a cluster, or by passes";

}  // namespace millrace::tools
