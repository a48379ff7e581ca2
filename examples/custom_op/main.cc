// Runs a program with an op type that the library does not have; the example provides the kernel.
//   custom_op PROGRAM
// PROGRAM has an op "swish_shift" (X -> Out; shift): out = x / (1 + exp(-x)) + shift. It reads the
// var x and writes the var out.

#include <cmath>
#include <iostream>
#include <vector>

#include <millrace/executor/session.h>
#include <millrace/framework/program_file.h>

namespace {

millrace::Status swish_shift(millrace::OpCall& call) {
  MILLRACE_ASSIGN_OR_RETURN(const millrace::ArrayView x, call.input("X"));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto out, call.output_values<float>("Out", x.dtype, {x.dims.begin(), x.dims.end()}));
  const auto shift = static_cast<float>(call.number("shift").value_or(0));
  const auto values = x.values<float>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[i] / (1 + std::exp(-values[i])) + shift;
  return call.set_lod("Out", {x.lod.begin(), x.lod.end()});
}

millrace::Status run(const std::string& file) {
  MILLRACE_ASSIGN_OR_RETURN(const auto program, millrace::load_program(file));
  millrace::SessionOptions options;
  options.custom_ops = {{"swish_shift", swish_shift}};
  MILLRACE_ASSIGN_OR_RETURN(millrace::Session session,
                            millrace::Session::open(*program, nullptr, options));
  const std::vector<float> values = {-1, 0, 1, 2};
  millrace::Arrays feeds;
  feeds["x"] = millrace::Array::of<float>({2, 2}, values);
  MILLRACE_ASSIGN_OR_RETURN(const millrace::Arrays results, session.run(feeds, {"out"}));
  for (const float value : results.at("out").values<float>()) std::cout << value << "\n";
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: custom_op PROGRAM\n";
    return 2;
  }
  const millrace::Status status = run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
