// Runs a saved inference model on one row of ones.
//   infer MODEL_FOLDER COLUMNS

#include <cstdlib>
#include <iostream>
#include <vector>

#include <millrace/executor/session.h>

namespace {

millrace::Status infer(const std::string& folder, int64_t columns) {
  MILLRACE_ASSIGN_OR_RETURN(millrace::Session session, millrace::Session::open_model(folder));
  const std::vector<float> ones(static_cast<size_t>(columns), 1.0F);
  millrace::Arrays feeds;
  feeds[session.inputs().at(0)] = millrace::Array::of<float>({1, columns}, ones);
  MILLRACE_ASSIGN_OR_RETURN(const millrace::Arrays results, session.run(feeds));
  for (const auto& [name, array] : results) {
    std::cout << name << ":";
    for (const float value : array.values<float>()) std::cout << " " << value;
    std::cout << "\n";
  }
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: infer MODEL_FOLDER COLUMNS\n";
    return 2;
  }
  const millrace::Status status = infer(argv[1], std::atoll(argv[2]));
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
