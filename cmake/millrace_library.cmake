# The helpers that every CMakeLists.txt uses:
#
#   millrace_library(<folder> SRCS a.cc ... [DEPS t ...] [PRIVATE_DEPS t ...] [UNITY])
#   millrace_module(<name> SRCS a.cc ... DEPS t ...)
#   millrace_tool(<name> SRCS main.cc ... [DEPS t ...])
#   millrace_test(<name> SRCS a_test.cc ... [DEPS t ...] [ARGS arg ...])
#   millrace_fuzz(<name> SRCS a_fuzz.cc ... CORPUS <dir> [DEPS t ...])
#
# Sources include each other from the repository root: #include "framework/program.h".

# Warnings, hardening and sanitizers, the same for all code that is not generated.
function(millrace_flags target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(
    ${target}
    PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi
            -Wsuggest-override -Wvla $<$<BOOL:${MILLRACE_WERROR}>:-Werror> -ffunction-sections
            -fdata-sections -fstack-protector-strong
            # __FILE__ is relative to the repository root, so that clones share objects in the compiler cache
            -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  # not _GLIBCXX_DEBUG: LLVM's archives use the normal library layout
  target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--gc-sections -Wl,-z,relro,-z,now)
  if(MILLRACE_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(MILLRACE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${MILLRACE_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${MILLRACE_SANITIZE})
  else()
    target_compile_definitions(${target} PRIVATE _FORTIFY_SOURCE=2)
  endif()
endfunction()

# MILLRACE_LAYERS: all folders from the lowest rank up; MILLRACE_RANK_<folder>: its rank.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/layers.txt rows REGEX "^[0-9]")
foreach(row IN LISTS rows)
  string(REPLACE " " ";" row ${row})
  list(GET row 1 folder)
  list(GET row 0 MILLRACE_RANK_${folder})
  list(APPEND MILLRACE_LAYERS ${folder})
endforeach()

# Stops when one of the given millrace:: targets is not of lower rank than `folder`.
function(millrace_check_ranks folder)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "^millrace::(.+)$")
      set(rank ${MILLRACE_RANK_${CMAKE_MATCH_1}})
      if(NOT rank LESS MILLRACE_RANK_${folder})
        message(FATAL_ERROR "${folder} (rank ${MILLRACE_RANK_${folder}}) may not link to ${dep} (rank ${rank})")
      endif()
    endif()
  endforeach()
endfunction()

# Compiles sources eight at a time if MILLRACE_UNITY is on. GCC then treats the sources as headers, for which
# -Wsubobject-linkage is meant, so that warning is off.
function(millrace_unity target)
  if(MILLRACE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Library millrace_<folder>, used as millrace::<folder>. DEPS are visible to headers of the folder.
# UNITY: if MILLRACE_UNITY is on, sources are compiled eight at a time; their unnamed namespaces must then not share
# names.
function(millrace_library folder)
  cmake_parse_arguments(arg "UNITY" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target millrace_${folder})
  millrace_check_ranks(${folder} ${arg_DEPS} ${arg_PRIVATE_DEPS})
  if(arg_SRCS)
    add_library(${target} STATIC ${arg_SRCS})
    millrace_flags(${target})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
    if(arg_UNITY)
      millrace_unity(${target})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(${target} INTERFACE ${arg_DEPS} ${arg_PRIVATE_DEPS})
  endif()
  add_library(millrace::${folder} ALIAS ${target})
endfunction()

# A module that framework/base/module.h loads: <build>/<lib>/millrace/<name>.so, installed into the same folder unless
# FOR_TESTS is given. It contains its own copy of the archives that it uses and exports one function (cmake/module.map).
set(MILLRACE_MODULE_FOLDER ${CMAKE_INSTALL_LIBDIR}/millrace)
add_custom_target(millrace_modules)
function(millrace_module name)
  cmake_parse_arguments(arg "FOR_TESTS" "" "SRCS;DEPS" ${ARGN})
  set(target millrace_${name}_module)
  set(map ${PROJECT_SOURCE_DIR}/cmake/module.map)
  add_library(${target} MODULE ${arg_SRCS})
  millrace_flags(${target})
  set_target_properties(
    ${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} LINK_DEPENDS ${map}
                         LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${MILLRACE_MODULE_FOLDER})
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  if(NOT MILLRACE_SANITIZE) # the runtime of the sanitizers is in the program
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  if(arg_FOR_TESTS)
    return()
  endif()
  add_dependencies(millrace_modules ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${MILLRACE_MODULE_FOLDER} COMPONENT modules)
endfunction()

# Programs that may load modules are built after them.
function(millrace_uses_modules target)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "^millrace::(.+)$" AND NOT MILLRACE_RANK_${CMAKE_MATCH_1} LESS MILLRACE_RANK_executor)
      add_dependencies(${target} millrace_modules)
      return()
    endif()
  endforeach()
endfunction()

# Executable <build>/tools/<name>: a main for the function of tools/verbs.h with the same name and _ for -. Its objects
# are also linked into the program millrace, which is installed for all of them. APART: it is installed as a separate
# program.
function(millrace_tool name)
  cmake_parse_arguments(arg "APART" "" "SRCS;DEPS" ${ARGN})
  string(REPLACE - _ verb ${name})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${verb}_main.cc CONTENT
"#include \"tools/verbs.h\"

int main(int argc, char** argv) {
  return millrace::tools::@verb@(argc, argv);
}
" @ONLY)
  add_library(${name}-verb OBJECT ${arg_SRCS})
  millrace_flags(${name}-verb)
  target_link_libraries(${name}-verb PUBLIC ${arg_DEPS})
  add_executable(${name} ${PROJECT_BINARY_DIR}/generated/${verb}_main.cc)
  millrace_uses_modules(${name} ${arg_DEPS})
  millrace_flags(${name})
  target_link_libraries(${name} PRIVATE ${name}-verb)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_TOOLS ${name})
  if(arg_APART)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  else()
    set_property(GLOBAL APPEND PROPERTY MILLRACE_VERBS ${name})
  endif()
endfunction()

# GoogleTest program; each of its cases is one ctest entry. It runs in the repository root and finds the tools in
# $MILLRACE_BIN_DIR. ARGS are passed to every case.
function(millrace_test name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;ARGS" ${ARGN})
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  add_executable(${name} ${arg_SRCS})
  millrace_flags(${name})
  millrace_uses_modules(${name} ${arg_DEPS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  millrace_unity(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(
    ${name}
    TEST_PREFIX ${name}.
    EXTRA_ARGS ${arg_ARGS}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    DISCOVERY_MODE PRE_TEST
    NO_PRETTY_VALUES
    PROPERTIES ENVIRONMENT MILLRACE_BIN_DIR=${PROJECT_BINARY_DIR}/tools TIMEOUT 120)
endfunction()

# A source with LLVMFuzzerTestOneInput and CORPUS, the folder of its seeds (relative to the repository root). With
# MILLRACE_FUZZ: libFuzzer program <build>/fuzz/<name>, and next to it <name>.corpus with the name of the folder.
# Otherwise a test that runs every seed once.
function(millrace_fuzz name)
  cmake_parse_arguments(arg "" "CORPUS" "SRCS;DEPS" ${ARGN})
  if(MILLRACE_FUZZ)
    set(folder fuzz)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/fuzz/${name}.corpus CONTENT "${arg_CORPUS}\n")
  else()
    set(folder tests)
    list(APPEND arg_DEPS millrace_fuzz_replay)
  endif()
  add_executable(${name} ${arg_SRCS})
  millrace_flags(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
  if(MILLRACE_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(millrace_fuzz_targets ${name})
  else()
    add_test(NAME ${name}.seeds COMMAND ${name} ${arg_CORPUS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
endfunction()

if(MILLRACE_TESTS)
  include(GoogleTest)
endif()
if(MILLRACE_FUZZ)
  add_custom_target(millrace_fuzz_targets)
endif()
