// Writes files of examples, and trains a saved program from them: from memory, shuffled before each
// epoch, and while the files are read.
//   datasets MAIN STARTUP FOLDER

#include <filesystem>
#include <fstream>
#include <iostream>

#include <millrace/api/dataset.h>
#include <millrace/api/executor.h>
#include <millrace/framework/program_file.h>

namespace {

namespace api = millrace::api;

constexpr const char* kLoss = "mean_0.tmp_0";

// 64 lines: 13 numbers, and their sum. MultiSlot text has a count before the numbers of each var.
void write_examples(const std::string& path, bool multi_slot) {
  std::ofstream file(path);
  for (int row = 0; row < 64; ++row) {
    double sum = 0;
    if (multi_slot) file << "13 ";
    for (int column = 0; column < 13; ++column) {
      const double x = (row * 7 + column * 5) % 11 * 0.1 - 0.5;
      file << x << (multi_slot ? ' ' : ',');
      sum += x;
    }
    file << (multi_slot ? "1 " : "") << sum << "\n";
  }
}

void show(const char* what, const api::EpochResult& epoch) {
  std::cout << what << ": " << epoch.batches << " batches, " << epoch.examples
            << " examples, mean loss " << epoch.means.at(kLoss) << "\n";
}

millrace::Status run(const std::string& main_file, const std::string& startup_file,
                     const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const auto main_program, millrace::load_program(main_file));
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, millrace::load_program(startup_file));
  MILLRACE_ASSIGN_OR_RETURN(api::Executor executor, api::Executor::create());
  api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(executor.run(*startup, scope).status());
  MILLRACE_ASSIGN_OR_RETURN(api::PreparedProgram training, executor.prepare(*main_program, scope));

  std::filesystem::create_directories(folder);
  write_examples(folder + "/part-0", true);
  MILLRACE_ASSIGN_OR_RETURN(api::Dataset memory,
                            api::Dataset::create(*main_program, {.files = {folder + "/part-*"},
                                                                 .use_vars = {"x", "y"},
                                                                 .in_memory = true,
                                                                 .batch_size = 16,
                                                                 .seed = 7}));
  MILLRACE_RETURN_IF_ERROR(memory.load_into_memory());
  for (int epoch = 0; epoch < 3; ++epoch) {
    MILLRACE_RETURN_IF_ERROR(memory.local_shuffle());
    MILLRACE_ASSIGN_OR_RETURN(const api::EpochResult done,
                              training.train_from_dataset(memory, {.fetches = {kLoss}}));
    show("from memory", done);
  }

  // the same numbers as comma-separated columns
  write_examples(folder + "/table.csv", false);
  MILLRACE_ASSIGN_OR_RETURN(
      api::Dataset queue,
      api::Dataset::create(*main_program,
                           {.files = {folder + "/table.csv"},
                            .slots_text = R"({"format": "delimited", "separator": ",", "slots": [
                                {"name": "x", "columns": "0:12"}, {"name": "y", "columns": 13}]})",
                            .batch_size = 16}));
  api::EpochOptions options{.fetches = {kLoss}, .print_period = 2};
  options.on_print = [](const api::EpochStep& step) {
    std::cout << step.text << "\n";
    return millrace::Ok();
  };
  MILLRACE_ASSIGN_OR_RETURN(const api::EpochResult done,
                            training.train_from_dataset(queue, options));
  show("from the file", done);
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: datasets MAIN STARTUP FOLDER\n";
    return 2;
  }
  const millrace::Status status = run(argv[1], argv[2], argv[3]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
