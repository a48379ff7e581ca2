// Distributes a training program over two parameter servers and two trainers, and prints the size
// of each resulting program.
//   embed MAIN_PROGRAM STARTUP_PROGRAM

#include <iostream>

#include <millrace/framework/base/version.h>
#include <millrace/framework/program_file.h>
#include <millrace/transpiler/distribute_transpiler.h>

namespace {

millrace::Status show(const std::string& main_file, const std::string& startup_file) {
  MILLRACE_ASSIGN_OR_RETURN(const auto main_program, millrace::load_program(main_file));
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, millrace::load_program(startup_file));

  millrace::transpiler::DistributeTranspiler transpiler({.wait_port = false});
  MILLRACE_RETURN_IF_ERROR(transpiler.transpile(
      *main_program, *startup, {.pservers = "10.0.0.1:6174,10.0.0.2:6174", .trainers = "2"}));

  MILLRACE_ASSIGN_OR_RETURN(const auto trainer, transpiler.get_trainer_program());
  std::cout << "trainer: " << program_bytes(*trainer).size() << " bytes\n";
  for (const auto& endpoint : transpiler.pserver_endpoints()) {
    MILLRACE_ASSIGN_OR_RETURN(const auto server, transpiler.get_pserver_program(endpoint));
    std::cout << endpoint << ": " << program_bytes(*server).size() << " bytes\n";
  }
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: embed MAIN_PROGRAM STARTUP_PROGRAM\n";
    return 2;
  }
  std::cout << "millrace " << millrace::version_info().version << "\n";
  const millrace::Status status = show(argv[1], argv[2]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
