# Generates a source of millrace_framework from framework/base/version.cc.in.

find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE MILLRACE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT MILLRACE_COMMIT)
  set(MILLRACE_COMMIT unknown)
endif()
set(MILLRACE_VERSION_SOURCE ${PROJECT_BINARY_DIR}/generated/framework/base/version.cc)
configure_file(${PROJECT_SOURCE_DIR}/framework/base/version.cc.in ${MILLRACE_VERSION_SOURCE} @ONLY)
