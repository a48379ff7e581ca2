#include <millrace/framework/base/version.h>

#include <iostream>

int main() {
  std::cout << "millrace " << millrace::version_info().version << "\n";
}
