#include <iostream>

#include <millrace/framework/base/version.h>

int main() {
  std::cout << "millrace " << millrace::version_info().version << "\n";
}
