// Writes networks of the training references, built with the front end:
//   write_training_nets FOLDER NAME SEED
// Writes main_forward.pb, startup_forward.pb, main.pb and startup.pb into FOLDER. Without arguments
// it prints the names.

#include <cstdlib>
#include <iostream>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/export.h"
#include "tests/frontend/training_nets.h"

namespace millrace {
namespace {

Status write(const std::string& path, const Program& program) {
  return write_file_atomically(path, export_program(program), Replace::kYes);
}

Status write_net(const TrainingNet& description, const std::string& folder, int32_t seed) {
  Network net(seed);
  const std::vector<VarRef> losses = description.build(net);
  MILLRACE_RETURN_IF_ERROR(net.status());
  MILLRACE_RETURN_IF_ERROR(write(folder + "/main_forward.pb", net.main()));
  MILLRACE_RETURN_IF_ERROR(write(folder + "/startup_forward.pb", net.startup()));
  const std::vector<MinimizeOptions> options = description.options();
  for (size_t i = 0; i < losses.size(); ++i)
    MILLRACE_RETURN_IF_ERROR(net.minimize(losses[i], options[i]).status());
  MILLRACE_RETURN_IF_ERROR(write(folder + "/main.pb", net.main()));
  return write(folder + "/startup.pb", net.startup());
}

int run(int argc, char** argv) {
  for (const TrainingNet& net : training_nets()) {
    if (argc != 4) {
      std::cout << net.name << "\n";
    } else if (std::string(argv[2]) == net.name) {
      const Status status = write_net(net, argv[1], std::atoi(argv[3]));
      if (!status.ok()) std::cerr << status.to_string() << "\n";
      return status.ok() ? 0 : 1;
    }
  }
  return argc == 1 ? 0 : 2;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::run(argc, argv);
}
