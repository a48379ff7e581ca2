# The functions that every CMakeLists.txt uses.
#
# Sources are found, not listed (docs/decisions/0026-sources-are-found.md): a library consists of all sources of its
# folder, a test program of those that match its patterns. Sources include each other from the repository root:
# #include "framework/program.h".

# The sources that match the patterns, relative to the current folder, sorted by name. CMake looks for new ones before
# each build. A pattern without a match is an error.
function(millrace_glob out)
  set(found "")
  foreach(pattern IN LISTS ARGN)
    file(GLOB matches CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${pattern})
    if(NOT matches)
      message(FATAL_ERROR "no file matches ${CMAKE_CURRENT_SOURCE_DIR}/${pattern}")
    endif()
    list(APPEND found ${matches})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# For what a build may lack: appends to the list `out` the source that is not compiled, which is `without` if the
# condition holds, otherwise `with`. The condition is a list: "TARGET;gloo".
function(millrace_choose out condition with without)
  if(${condition})
    list(APPEND ${out} ${without})
  else()
    list(APPEND ${out} ${with})
  endif()
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()

# A condition, and the options of sources that are compiled for processors with AVX2, FMA and F16C.
set(MILLRACE_IS_X86 CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
if(${MILLRACE_IS_X86})
  set(MILLRACE_WIDE_OPTIONS -march=x86-64-v3)
endif()

# Warnings, hardening and sanitizers, the same for all code that is not generated.
function(millrace_flags target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  # __FILE__ is relative to the repository root, so that clones share objects in the compiler cache
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wsuggest-override -Wvla
    $<$<BOOL:${MILLRACE_WERROR}>:-Werror> -ffunction-sections -fdata-sections -fstack-protector-strong
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  # not _GLIBCXX_DEBUG: LLVM's archives use the normal library layout
  target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--gc-sections -Wl,-z,relro,-z,now)
  if(MILLRACE_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(MILLRACE_SANITIZE)
    # GCC's analysis does not see through the checks that sanitizers insert: variants look uninitialized.
    target_compile_options(${target} PRIVATE -fsanitize=${MILLRACE_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
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

# If MILLRACE_UNITY is on, compiles several sources at once. Names in unnamed namespaces must then be unique among them,
# or in a namespace of their file (tests/layers/check_names.py). GCC treats the sources as headers, for which
# -Wsubobject-linkage is meant, so that warning is off. BY_FOLDER: ten sources of a folder at a time, so that a new source
# changes few of the groups; sources outside of the current folder are compiled separately. Otherwise eight at a time.
function(millrace_unity target)
  cmake_parse_arguments(arg "BY_FOLDER" "" "" ${ARGN})
  if(NOT MILLRACE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  if(NOT arg_BY_FOLDER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^/")
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    string(REPLACE / _ folder "${folder}")
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR group "${count_${folder}} / 10")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP sources_${folder}_${group})
  endforeach()
endfunction()

# Library millrace_<folder>, used as millrace::<folder>: the sources of the current folder and the folders in it, without
# those that match EXCEPT, and SRCS, which are generated. DEPS are visible to headers of the folder.
function(millrace_library folder)
  cmake_parse_arguments(arg "" "" "EXCEPT;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target millrace_${folder})
  millrace_check_ranks(${folder} ${arg_DEPS} ${arg_PRIVATE_DEPS})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
  millrace_glob(except ${arg_EXCEPT})
  list(REMOVE_ITEM sources ${except})
  add_library(${target} STATIC ${sources} ${arg_SRCS})
  add_library(millrace::${folder} ALIAS ${target})
  millrace_flags(${target})
  millrace_unity(${target} BY_FOLDER)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
endfunction()

# A module that framework/base/module.h loads: <build>/<lib>/millrace/<name>.so, installed into the same folder unless
# FOR_TESTS is given. It contains its own copy of the archives that it uses and exports one function (cmake/module.map).
# There is no module if the target IF is given and does not exist.
set(MILLRACE_MODULE_FOLDER ${CMAKE_INSTALL_LIBDIR}/millrace)
add_custom_target(millrace_modules)
function(millrace_module name)
  cmake_parse_arguments(arg "FOR_TESTS" "IF" "SRCS;DEPS" ${ARGN})
  if(arg_IF AND NOT TARGET ${arg_IF})
    return()
  endif()
  set(target millrace_${name}_module)
  set(map ${PROJECT_SOURCE_DIR}/cmake/module.map)
  millrace_glob(sources ${arg_SRCS})
  add_library(${target} MODULE ${sources})
  millrace_flags(${target})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} LINK_DEPENDS ${map}
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

# Executable <build>/<folder>/<name>, built after the modules if it uses a library that may load them. GCC's programs are
# linked by lld if it is installed (docs/decisions/0028-build-time.md).
find_program(MILLRACE_LLD ld.lld)
function(millrace_program name folder)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  millrace_flags(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  if(MILLRACE_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT MILLRACE_SANITIZE)
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
  foreach(dep IN LISTS arg_DEPS)
    if(dep MATCHES "^millrace::(.+)$" AND NOT MILLRACE_RANK_${CMAKE_MATCH_1} LESS MILLRACE_RANK_executor)
      add_dependencies(${name} millrace_modules)
    endif()
  endforeach()
endfunction()

# Executable <build>/tools/<name>: a main for the function of tools/verbs.h with the same name and _ for -, which is in
# the source of that name. Its objects are also linked into the program millrace, which is installed for all of them.
# APART: it is installed as a separate program. SRCS: additional sources.
function(millrace_tool name)
  cmake_parse_arguments(arg "APART" "" "SRCS;DEPS" ${ARGN})
  string(REPLACE - _ verb ${name})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${verb}_main.cc CONTENT
"#include \"tools/common/guarded_main.h\"
#include \"tools/verbs.h\"
int main(int argc, char** argv) {
  return millrace::tools::guarded_main(millrace::tools::@verb@, argc, argv);
}
" @ONLY)
  add_library(${name}-verb OBJECT ${verb}.cc ${arg_SRCS})
  millrace_flags(${name}-verb)
  target_link_libraries(${name}-verb PUBLIC millrace::tools ${arg_DEPS})
  millrace_program(${name} tools SRCS ${PROJECT_BINARY_DIR}/generated/${verb}_main.cc DEPS ${name}-verb millrace::tools)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_TOOLS ${name})
  if(arg_APART)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  else()
    set_property(GLOBAL APPEND PROPERTY MILLRACE_VERBS ${name})
  endif()
endfunction()

# Makes each case of a GoogleTest program a ctest entry, which runs in the repository root with the variable `environment`.
function(millrace_discover_tests name environment)
  gtest_discover_tests(${name} TEST_PREFIX ${name}. WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DISCOVERY_MODE PRE_TEST
                       NO_PRETTY_VALUES PROPERTIES ENVIRONMENT ${environment} TIMEOUT 120)
endfunction()

# GoogleTest program, which finds the tools in $MILLRACE_BIN_DIR. REST: those of the matching sources that are in no
# earlier test program. DEPS: besides Threads::Threads. NEEDS: what must be built for the test to run.
function(millrace_test name)
  cmake_parse_arguments(arg "" "" "SRCS;REST;DEPS;NEEDS" ${ARGN})
  millrace_glob(sources ${arg_SRCS})
  millrace_untested(rest ${arg_REST})
  list(APPEND sources ${rest})
  list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_TESTED ${paths})
  millrace_program(${name} tests SRCS ${sources} DEPS ${arg_DEPS} Threads::Threads GTest::gmock GTest::gtest_main)
  millrace_unity(${name})
  if(arg_NEEDS)
    add_dependencies(${name} ${arg_NEEDS})
  endif()
  millrace_discover_tests(${name} MILLRACE_BIN_DIR=${PROJECT_BINARY_DIR}/tools)
endfunction()

# Those of the matching sources that are in no test program so far.
function(millrace_untested out)
  millrace_glob(found ${ARGN})
  get_property(tested GLOBAL PROPERTY MILLRACE_TESTED)
  foreach(source IN LISTS found)
    if(${CMAKE_CURRENT_SOURCE_DIR}/${source} IN_LIST tested)
      list(REMOVE_ITEM found ${source})
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# A Python script of the current folder as a test. It exits with 77 to be skipped.
function(millrace_script_test name script)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARGN}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# Fuzz target <name>_fuzz: <name>_fuzz.cc with LLVMFuzzerTestOneInput, millrace::<library>, and the folder of its seeds
# in tests/fuzz/seeds, by default <name>. With MILLRACE_FUZZ: libFuzzer program <build>/fuzz/<name>_fuzz, and next to it
# <name>_fuzz.corpus with the path of the seeds. Otherwise a test that runs every seed once.
function(millrace_fuzz name library)
  list(APPEND ARGN ${name}) # used where no folder is given
  list(GET ARGN 0 folder)
  set(seeds tests/fuzz/seeds/${folder})
  set(target ${name}_fuzz)
  if(MILLRACE_FUZZ)
    millrace_program(${target} fuzz SRCS ${target}.cc DEPS millrace::${library})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/fuzz/${target}.corpus CONTENT "${seeds}\n")
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    add_dependencies(millrace_fuzz_targets ${target})
  else()
    millrace_program(${target} tests SRCS ${target}.cc DEPS millrace::${library} millrace_fuzz_replay)
    add_test(NAME ${target}.seeds COMMAND ${target} ${seeds} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
endfunction()

if(MILLRACE_TESTS)
  enable_testing()
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
endif()
add_custom_target(millrace_fuzz_targets)
