#pragma once

#include <string_view>

/// The tools as functions. Each program <build>/tools/<name> is a main that calls one of them. The
/// installed program `millrace` contains all tools that use the common allocator, and acts as one
/// of them if it is called by that tool's name. Arguments and results are those of main().
namespace millrace::tools {

int checkpoint(int argc, char** argv);
int diff_program(int argc, char** argv);
int inspect_program(int argc, char** argv);
int job_report(int argc, char** argv);
int launch(int argc, char** argv);
int migrate(int argc, char** argv);
int pserver(int argc, char** argv);
int quantize_program(int argc, char** argv);
int run_program(int argc, char** argv);
int status(int argc, char** argv);
int transpile_program(int argc, char** argv);

/// The purpose of each tool, as shown in its help and in the help of `millrace`.
inline constexpr std::string_view kCheckpointPurpose =
    "list, verify, convert and reshard checkpoints and parameter files";
inline constexpr std::string_view kDiffProgramPurpose = "show where two programs differ";
inline constexpr std::string_view kInspectProgramPurpose = "print, draw and check a program";
inline constexpr std::string_view kJobReportPurpose =
    "write a page about a finished job of trainers and parameter servers";
inline constexpr std::string_view kLaunchPurpose =
    "start the processes of a job, watch them, and stop them together";
inline constexpr std::string_view kMigratePurpose =
    "say what old programs are, and write models in other formats (ONNX, PIR)";
inline constexpr std::string_view kPserverPurpose =
    "serve the parameters of a transpiled job to its trainers";
inline constexpr std::string_view kQuantizeProgramPurpose =
    "find scales for 8-bit integers from examples and write a quantized model";
inline constexpr std::string_view kRunProgramPurpose = "run a program: inference, training, timing";
inline constexpr std::string_view kStatusPurpose = "show what the servers of a job are doing";
inline constexpr std::string_view kTranspileProgramPurpose =
    "rewrite a program for a cluster, or by passes";

}  // namespace millrace::tools
