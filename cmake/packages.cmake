# Debian packages of the installed components, made by cpack:
#
#   libmillrace0.1   the shared libraries and the modules that they load
#   libmillrace-dev  headers, CMake package, pkg-config files, headers for passes
#   millrace         the tools, with manual pages and completions
#
# scripts/make_packages.sh calls it and adds python3-millrace.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_CONTACT "millrace developers <millrace@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributes, trains and runs PaddlePaddle fluid programs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(soname ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libmillrace${soname})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "libraries that run and distribute fluid programs")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmillrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libmillrace${soname} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "llvm-16-dev, libncurses-dev") # for passes
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "headers of the libraries of millrace")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME millrace)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libmillrace${soname} (= ${PROJECT_VERSION})") # modules
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "command-line tools for fluid programs")
include(CPack)
cpack_add_component(library GROUP library)
cpack_add_component(modules GROUP library)
cpack_add_component(headers GROUP development)
cpack_add_component(dev GROUP development)
cpack_add_component(tools GROUP tools)
